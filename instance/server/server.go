// Package server answers the kubelet's probes, and the other agents of the
// cluster, who show its certificate.
package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/acme/pg-operator/instance/contract"
)

// Probes are the questions of the kubelet.
type Probes interface {
	// Started: the agent works. Live: its main loop goes on. Ready: the instance takes part in the cluster.
	Started() bool
	Live() bool
	Ready() bool
}

// ServeProbes answers on the listener until ctx ends, with yes or no and nothing else.
func ServeProbes(ctx context.Context, listener net.Listener, probes Probes) error {
	mux := http.NewServeMux()
	for path, ask := range map[string]func() bool{
		contract.PathStartup: probes.Started, contract.PathLive: probes.Live, contract.PathReady: probes.Ready,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if !ask() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}
	return serve(ctx, &http.Server{Handler: mux}, limit(listener))
}

// Limits of requests, which are all small.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 5 * time.Second
	idleTimeout     = 30 * time.Second
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = time.Second
)

func serve(ctx context.Context, s *http.Server, listener net.Listener) error {
	s.ReadTimeout, s.WriteTimeout, s.IdleTimeout, s.MaxHeaderBytes = readTimeout, writeTimeout, idleTimeout, maxHeaderBytes
	// Handshakes that fail are the client's business, and anybody can make them.
	s.ErrorLog = zap.NewStdLog(zap.NewNop())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := s.Shutdown(end)
	if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
		return errors.Join(err, serveErr)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return s.Close()
	}
	return err
}
