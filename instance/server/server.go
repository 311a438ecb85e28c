// Package server answers the kubelet's probes, and peers that show a
// certificate of the cluster.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/acme/pg-operator/apis/naming"
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
	return serve(ctx, &http.Server{Handler: mux}, listener)
}

// Identity is the certificate that a server shows and the authority that its clients' certificates must come from.
type Identity func() (tls.Certificate, *x509.CertPool, error)

// ServeStatus answers peers on the listener until ctx ends. The identity is asked for at each
// connection, so that a renewed certificate is used at once.
func ServeStatus(ctx context.Context, listener net.Listener, identity Identity, status func() contract.Status) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+contract.PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// The client has gone if this fails.
		_ = json.NewEncoder(w).Encode(status())
	})
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, authority, err := identity()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{certificate},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    authority,
				// A resumed session would outlive a change of the authority.
				SessionTicketsDisabled: true,
			}, nil
		},
	}
	return serve(ctx, &http.Server{Handler: onlyPeers(mux)}, tls.NewListener(listener, config))
}

// onlyPeers refuses certificates that the cluster's authority gave to somebody else, such as an application.
func onlyPeers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 ||
			r.TLS.VerifiedChains[0][0].Subject.CommonName != naming.UserReplication {
			http.Error(w, "this certificate does not belong to an instance of the cluster", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
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
