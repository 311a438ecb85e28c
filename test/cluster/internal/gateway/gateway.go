// Package gateway connects the host's loopback with the cluster's network:
// one port leads to the API server, another is a SOCKS5 proxy to everything
// inside. No packet crosses; only the bytes of accepted connections do.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/netns"
)

// dialTimeout bounds one connection attempt; it is longer than the kernel's
// first two SYN retries, so that a short cut is survived.
const dialTimeout = 10 * time.Second

// Dialer opens connections inside a network namespace.
type Dialer struct{ Namespace string }

// Dial connects to an IP address, or to a name of the cluster's DNS, which may
// leave out the cluster's domain: orders-db-rw.shop.svc:5432.
func (d Dialer) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		if host, err = d.resolve(ctx, host); err != nil {
			return nil, err
		}
	}
	return d.dialIP(ctx, "tcp", net.JoinHostPort(host, port))
}

// dialIP opens the socket in the namespace. The address is a literal, so the
// net package opens it on the calling thread.
func (d Dialer) dialIP(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var connection net.Conn
	err := netns.Do(d.Namespace, func() (err error) {
		connection, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

func (d Dialer) resolve(ctx context.Context, name string) (string, error) {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.dialIP(ctx, network, net.JoinHostPort(layout.ControlPlaneIP, "53"))
	}}
	addresses, err := resolver.LookupNetIP(ctx, "ip4", qualify(name))
	if err != nil {
		return "", err
	}
	if len(addresses) == 0 {
		return "", fmt.Errorf("%s has no address", name)
	}
	return addresses[0].String(), nil
}

// qualify makes a name absolute, so that the host's search list does not apply.
func qualify(name string) string {
	name = strings.TrimSuffix(name, ".")
	if !strings.HasSuffix(name, "."+layout.ClusterDomain) {
		name += "." + layout.ClusterDomain
	}
	return name + "."
}

// acceptPause is how long Serve waits after a connection that it could not
// accept, for lack of file descriptors say.
const acceptPause = 100 * time.Millisecond

// Serve accepts connections until the context ends and hands each to handle.
// One that cannot be accepted is logged: everything behind the gateway lives on.
func Serve(ctx context.Context, listener net.Listener, handle func(ctx context.Context, connection net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		connection, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			fmt.Fprintln(os.Stderr, time.Now().UTC().Format(time.RFC3339Nano), "gateway:", err)
			time.Sleep(acceptPause)
			continue
		}
		group.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
			defer stop()
			defer connection.Close()
			handle(ctx, connection)
		})
	}
}

// Forward handles connections by joining them to a fixed address.
func Forward(dialer Dialer, address string) func(context.Context, net.Conn) {
	return func(ctx context.Context, client net.Conn) {
		server, err := dialer.Dial(ctx, address)
		if err != nil {
			// The client sees the connection close, as from a dead server.
			fmt.Fprintln(os.Stderr, time.Now().UTC().Format(time.RFC3339Nano), "gateway:", err)
			return
		}
		join(client, server)
	}
}

// join copies both ways; each side's end of stream is passed on, so that
// half-closed connections work.
func join(a, b net.Conn) {
	defer b.Close()
	var group sync.WaitGroup
	copyOneWay := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = to.Close()
		_ = from.Close()
	}
	group.Go(func() { copyOneWay(a, b) })
	group.Go(func() { copyOneWay(b, a) })
	group.Wait()
}
