package server

import (
	"net"
	"sync"
)

// maxPerClient is how many connections one address may have open at a time; a peer has a few, the kubelet one. What the
// agent needs memory and files for is what PostgreSQL lives on.
const maxPerClient = 32

// limited is a listener that closes what a client opens beyond its share, so that none can use up the agent's files and
// memory, nor take the place of others.
type limited struct {
	net.Listener

	mu   sync.Mutex
	open map[string]int
}

func limit(l net.Listener) *limited { return &limited{Listener: l, open: map[string]int{}} }

// Accept returns the next connection of a client that has not too many.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err == nil && l.take(client) {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.leave(client) })}, nil
		}
		// It is the client's business to notice.
		_ = conn.Close()
	}
}

func (l *limited) take(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= maxPerClient {
		return false
	}
	l.open[client]++
	return true
}

func (l *limited) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn

	leave func()
}

// Close closes the connection.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
