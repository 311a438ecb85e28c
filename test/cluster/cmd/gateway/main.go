// Command gateway lets programs in the host's network namespace reach the local
// cluster through two ports on loopback: the API server, and a SOCKS5 proxy to
// services and pods.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/acme/pg-operator/test/cluster/internal/gateway"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

func main() {
	api := flag.String("api", "", "`address` on loopback that leads to the API server")
	socks := flag.String("socks", "", "`address` on loopback of the SOCKS5 proxy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *api, *socks); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, api, socks string) error {
	dialer := gateway.Dialer{Namespace: layout.ControlPlaneNamespace}
	server := net.JoinHostPort(layout.ControlPlaneIP, strconv.Itoa(layout.APIPort))
	group, ctx := errgroup.WithContext(ctx)
	for address, handle := range map[string]func(context.Context, net.Conn){
		api:   gateway.Forward(dialer, server),
		socks: gateway.SOCKS(dialer.Dial),
	} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		group.Go(func() error { return gateway.Serve(ctx, listener, handle) })
	}
	return group.Wait()
}
