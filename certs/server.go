package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Options of a Server.
type Options struct {
	// Host and Port to listen on; an empty Host is every address.
	Host string
	Port int
	// Dir holds FileCertificate and FileKey, kept up to date by somebody else.
	Dir string
	// ServerName is the name by which the API server calls: <service>.<namespace>.svc.
	ServerName string
	// Registerer takes the metric of the certificate's end.
	Registerer prometheus.Registerer
}

// Server is a webhook.Server that follows its certificate's files without a restart and knows whether the certificate
// it serves is any good.
type Server struct {
	webhook.Server

	watcher    *certwatcher.CertWatcher
	serverName string
	draining   atomic.Bool
}

// NewServer reads the certificate, which must exist: a pod that mounts the Secret is not started before it does.
func NewServer(options Options) (*Server, error) {
	watcher, err := certwatcher.New(filepath.Join(options.Dir, FileCertificate), filepath.Join(options.Dir, FileKey))
	if err != nil {
		return nil, fmt.Errorf("webhook certificate: %w (mount the Secret %s there, "+
			"or start with --webhooks=false)", err, SecretServing)
	}
	server := &Server{watcher: watcher, serverName: options.ServerName}
	if err := options.Registerer.Register(server.notAfter()); err != nil {
		return nil, fmt.Errorf("register the certificate's metric: %w", err)
	}
	server.Server = webhook.NewServer(webhook.Options{
		Host: options.Host, Port: options.Port, TLSOpts: []func(*tls.Config){server.TLS},
	})
	return server, nil
}

// TLS makes a server present the watched certificate.
func (s *Server) TLS(config *tls.Config) {
	HardenTLS(config)
	config.GetCertificate = s.watcher.GetCertificate
}

// Register serves a webhook at a path.
func (s *Server) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}

// Drain ends every connection after its next answer, so that callers, who keep connections for minutes, go elsewhere.
// A server that stops without it cuts connections on which requests are under way, and those fail.
func (s *Server) Drain() { s.draining.Store(true) }

// Start serves and follows the files until ctx ends. A watch that cannot be set up is an error, because the
// certificate would run out unseen.
func (s *Server) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.watcher.Start(ctx) })
	group.Go(func() error { return s.Server.Start(ctx) })
	return group.Wait()
}

// ReadyChecker fails until the server listens, and whenever the API server would refuse the served certificate. It is
// for readiness only: a restart mends no certificate.
func (s *Server) ReadyChecker() healthz.Checker {
	started := s.StartedChecker()
	return func(request *http.Request) error {
		if err := started(request); err != nil {
			return err
		}
		certificate, err := s.watcher.GetCertificate(nil)
		if err != nil {
			return fmt.Errorf("served certificate: %w", err)
		}
		return Check(certificate.Leaf, time.Now(), s.serverName)
	}
}

func (s *Server) notAfter() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pg_operator_serving_certificate_not_after_timestamp_seconds",
		Help: "End of the validity of the certificate that the operator serves, in seconds since 1970.",
	}, func() float64 {
		certificate, err := s.watcher.GetCertificate(nil)
		if err != nil || certificate.Leaf == nil {
			return 0
		}
		return float64(certificate.Leaf.NotAfter.Unix())
	})
}
