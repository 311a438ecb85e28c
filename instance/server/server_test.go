package server

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/acme/pg-operator/instance/contract"
)

// start runs a server until the test ends, and returns where it listens.
func start(t *testing.T, serve func(ctx context.Context, l net.Listener) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return listener.Addr().String()
}

type answers struct{ started, live, ready atomic.Bool }

func (a *answers) Started() bool { return a.started.Load() }
func (a *answers) Live() bool    { return a.live.Load() }
func (a *answers) Ready() bool   { return a.ready.Load() }

func TestProbes(t *testing.T) {
	a := &answers{}
	address := start(t, func(ctx context.Context, l net.Listener) error { return ServeProbes(ctx, l, a) })
	for path, answer := range map[string]*atomic.Bool{
		contract.PathStartup: &a.started, contract.PathLive: &a.live, contract.PathReady: &a.ready,
	} {
		for yes, want := range map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusOK} {
			answer.Store(yes)
			response, err := http.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != want || response.ContentLength != 0 {
				t.Errorf("%s: %d with %d bytes, want %d with none", path, response.StatusCode, response.ContentLength, want)
			}
		}
		answer.Store(false)
	}
	response, err := http.Get("http://" + address + contract.PathStatus)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("the plain port answers for the status: %d, %v", response.StatusCode, err)
	}
}
