package localcluster

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/net/proxy"
)

// Dial connects to an address inside the cluster: a ClusterIP, a pod IP, or a
// name of its DNS such as orders-db-rw.shop.svc. It has the shape of the dial
// functions of net/http and pgx.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer, err := proxy.SOCKS5("tcp", c.socks, nil, nil)
	if err != nil {
		return nil, err
	}
	withContext, ok := dialer.(proxy.ContextDialer)
	if !ok {
		return nil, fmt.Errorf("the SOCKS5 client %T does not take a context", dialer)
	}
	return withContext.DialContext(ctx, network, address)
}

// Lookup leaves the resolution of names to the proxy, which asks the cluster's
// own DNS. It has the shape of the lookup function of pgx.
func (c *Cluster) Lookup(_ context.Context, host string) ([]string, error) {
	return []string{host}, nil
}
