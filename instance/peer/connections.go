package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// idleTimeout is how long an unused connection is kept, less than the other side keeps it.
	idleTimeout = 25 * time.Second
	// maxIdle is how many of them are kept per instance.
	maxIdle = 2
	// dialTimeout bounds an attempt to connect, which may outlive the call that began it.
	dialTimeout = 2 * time.Second
)

// connections are those to one instance.
type connections struct {
	transport *http.Transport
	name      func() string
	identity  Identity

	mu sync.Mutex
	// known is the address that last answered. It is tried beside what the name leads to: when the API server is down,
	// DNS may be, too.
	known string
	// authority and certificate that the connections were made with.
	authority   *x509.CertPool
	certificate *x509.Certificate
}

func newConnections(name func() string, identity Identity) *connections {
	c := &connections{name: name, identity: identity}
	c.transport = &http.Transport{
		DialTLSContext: c.dial, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout, DisableCompression: true,
		MaxResponseHeaderBytes: 16 << 10,
	}
	return c
}

// renew closes connections that were made with another certificate or authority than now.
func (c *connections) renew(certificate tls.Certificate, authority *x509.CertPool) {
	c.mu.Lock()
	renewed := c.authority != nil && (c.authority != authority || c.certificate != certificate.Leaf)
	c.authority, c.certificate = authority, certificate.Leaf
	c.mu.Unlock()
	if renewed {
		c.transport.CloseIdleConnections()
	}
}

// forget gives up what is known of where the instance is.
func (c *connections) forget() {
	c.mu.Lock()
	c.known = ""
	c.mu.Unlock()
	c.transport.CloseIdleConnections()
}

// attempt is one way to reach the instance.
type attempt struct {
	conn *tls.Conn
	err  error
}

// dial connects by the name and by the known address at the same time, and takes what first shows the instance's
// certificate.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	certificate, authority, err := c.identity()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	addresses := []string{address}
	if c.known != "" && c.known != address {
		addresses = append(addresses, c.known)
	}
	c.mu.Unlock()
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: c.name(), RootCAs: authority, Certificates: []tls.Certificate{certificate},
	}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	attempts := make(chan attempt, len(addresses))
	for _, address := range addresses {
		go func() { attempts <- try(ctx, dialer, network, address) }()
	}
	var errs []error
	for left := len(addresses); left > 0; left-- {
		a := <-attempts
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		cancel()
		go closeOthers(attempts, left-1)
		c.mu.Lock()
		c.known = a.conn.RemoteAddr().String()
		c.mu.Unlock()
		return a.conn, nil
	}
	return nil, errors.Join(errs...)
}

func try(ctx context.Context, dialer tls.Dialer, network, address string) attempt {
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return attempt{err: err}
	}
	return attempt{conn: conn.(*tls.Conn)}
}

func closeOthers(attempts <-chan attempt, left int) {
	for range left {
		if a := <-attempts; a.err == nil {
			_ = a.conn.Close()
		}
	}
}
