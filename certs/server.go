package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Options of a Server.
type Options struct {
	// Host and Port to listen on; an empty Host is every address.
	Host string
	Port int
	// Source of the certificate; the Server starts it.
	Source Source
	// ServerName is the name by which the API server calls: <service>.<namespace>.svc.
	ServerName string
	// Registerer takes the metrics of the certificate's validity.
	Registerer prometheus.Registerer
}

// Source is where a certificate comes from.
type Source interface {
	// GetCertificate is for tls.Config. It returns an error, which says what is missing, while there is none.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Start keeps the certificate fresh until ctx ends.
	Start(ctx context.Context) error
	// Advice tells people where to look when a certificate was not renewed.
	Advice() string
}

// Server is a webhook.Server whose certificate changes without a restart and who knows whether the certificate it
// serves is any good.
type Server struct {
	webhook.Server

	source     Source
	serverName string
	draining   atomic.Bool
}

// NewServer registers the certificate's metrics; nothing listens before Start.
func NewServer(options Options) (*Server, error) {
	server := &Server{source: options.Source, serverName: options.ServerName}
	for _, metric := range []prometheus.Collector{server.notBefore(), server.notAfter()} {
		if err := options.Registerer.Register(metric); err != nil {
			return nil, fmt.Errorf("register the certificate's metrics: %w", err)
		}
	}
	server.Server = webhook.NewServer(webhook.Options{
		Host: options.Host, Port: options.Port, TLSOpts: []func(*tls.Config){server.TLS},
	})
	return server, nil
}

// TLS makes a server present the source's certificate.
func (s *Server) TLS(config *tls.Config) {
	HardenTLS(config)
	config.GetCertificate = s.source.GetCertificate
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

// Start serves and keeps the certificate fresh until ctx ends. A source that cannot start is an error, because the
// certificate would run out unseen.
func (s *Server) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.source.Start(ctx) })
	group.Go(func() error { return s.Server.Start(ctx) })
	return group.Wait()
}

// ReadyChecker fails until the server listens, and whenever the API server would refuse the served certificate. It is
// for readiness only: a restart mends no certificate.
func (s *Server) ReadyChecker() healthz.Checker {
	started := s.StartedChecker()
	return func(request *http.Request) error {
		// The certificate comes first: without one, the dial of started fails in words that help nobody.
		certificate, err := s.source.GetCertificate(nil)
		if err != nil {
			return fmt.Errorf("served certificate: %w", err)
		}
		if err := Check(certificate.Leaf, time.Now(), s.serverName); err != nil {
			return fmt.Errorf("%w (%s)", err, s.source.Advice())
		}
		return started(request)
	}
}

// leaf is the served certificate, nil when there is none.
func (s *Server) leaf() *x509.Certificate {
	certificate, err := s.source.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return certificate.Leaf
}

func (s *Server) notBefore() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pg_operator_serving_certificate_not_before_timestamp_seconds",
		Help: "Begin of the validity of the certificate that the operator serves, in seconds since 1970; 0 without one.",
	}, func() float64 {
		if leaf := s.leaf(); leaf != nil {
			return float64(leaf.NotBefore.Unix())
		}
		return 0
	})
}

func (s *Server) notAfter() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pg_operator_serving_certificate_not_after_timestamp_seconds",
		Help: "End of the validity of the certificate that the operator serves, in seconds since 1970; 0 without one.",
	}, func() float64 {
		if leaf := s.leaf(); leaf != nil {
			return float64(leaf.NotAfter.Unix())
		}
		return 0
	})
}
