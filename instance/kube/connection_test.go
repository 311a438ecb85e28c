package kube_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/acme/pg-operator/instance/kube"
)

// tunnel passes connections on until they are frozen, which nobody is told.
type tunnel struct {
	net.Listener
	to string

	mu     sync.Mutex
	frozen chan struct{}
	count  int
}

func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tunnel := &tunnel{Listener: l, to: to, frozen: make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tunnel.pass(t, conn)
		}
	}()
	return tunnel
}

func (n *tunnel) pass(t *testing.T, near net.Conn) {
	far, err := net.Dial("tcp", n.to)
	if err != nil {
		_ = near.Close()
		return
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	n.mu.Lock()
	frozen := n.frozen
	n.count++
	n.mu.Unlock()
	copying := func(to io.Writer, from io.Reader) {
		buffer := make([]byte, 4096)
		for {
			read, err := from.Read(buffer)
			select {
			case <-frozen:
				return
			default:
			}
			if err != nil {
				return
			}
			if _, err := to.Write(buffer[:read]); err != nil {
				return
			}
		}
	}
	go copying(far, near)
	go copying(near, far)
}

// freeze freezes the connections that there are, and returns how many were made.
func (n *tunnel) freeze() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.frozen)
	n.frozen = make(chan struct{})
	return n.count
}

// TestDeadConnection has the connection to the API server die without a word: the next call after one that was given up
// has to make another.
func TestDeadConnection(t *testing.T) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/leases/orders-db") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		l := coordinationv1.Lease{}
		l.Name, l.ResourceVersion = "orders-db", "1"
		if err := json.NewEncoder(w).Encode(l); err != nil {
			t.Error(err)
		}
	}))
	api.EnableHTTP2 = true // As API servers do.
	api.StartTLS()
	defer api.Close()
	n := newTunnel(t, api.Listener.Addr().String())
	client, err := kube.New(&rest.Config{Host: "https://" + n.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"orders-db", kube.Pod{Name: "orders-db-0", Namespace: "shop", UID: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	read := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := client.Lease(ctx)
		return err
	}
	for range 3 {
		if err := read(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if made := n.freeze(); made != 1 {
		t.Errorf("%d connections for three calls", made)
	}
	if read(300*time.Millisecond) == nil {
		t.Fatal("a dead connection answers")
	}
	if err := read(20 * time.Second); err != nil {
		t.Errorf("after a call that was given up: %v", err)
	}
}
