package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
)

// Signer is a certs.Source: it signs the certificate of one replica, of the leader as of any other.
type Signer struct {
	reader  client.Reader
	keeper  *Keeper
	options Options
	changed <-chan struct{}
	log     logr.Logger
	now     func() time.Time

	mu      sync.Mutex
	served  *tls.Certificate
	trouble error // why there is no certificate
}

// New makes the two halves: a Signer, which every replica runs, and a Keeper, which the leader runs. Both hear of changes
// through watched, which must hold what Watched says.
func New(
	ctx context.Context, config *rest.Config, watched *certs.Cache, log logr.Logger, options Options,
) (*Signer, *Keeper, error) {
	// What is read comes from the API server and not from a cache.
	api, err := client.New(config, client.Options{FieldOwner: naming.FieldManagerAuthority})
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of the certificate authority: %w", err)
	}
	forSigner, err := changes(ctx, watched)
	if err != nil {
		return nil, nil, err
	}
	forKeeper, err := changes(ctx, watched)
	if err != nil {
		return nil, nil, err
	}
	keeper := &Keeper{client: api, options: options, changed: forKeeper, log: log, now: time.Now}
	return &Signer{
		reader: api, keeper: keeper, options: options, changed: forSigner, log: log, now: time.Now,
		trouble: errors.New("not started"),
	}, keeper, nil
}

// GetCertificate implements certs.Source.
func (s *Signer) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return nil, fmt.Errorf("no certificate is signed yet: %w", s.trouble)
	}
	return s.served, nil
}

// Start implements certs.Source.
func (s *Signer) Start(ctx context.Context) error {
	loop(ctx, s.options, s.changed, s.log, s.pass)
	return nil
}

// Advice implements certs.Source.
func (s *Signer) Advice() string { return "the operator signs it by itself: see its log" }

// pass signs a certificate if the one that is served will not do. One that will is kept whatever goes wrong.
func (s *Signer) pass(ctx context.Context) error {
	err := s.renew(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
	return err
}

func (s *Signer) renew(ctx context.Context) error {
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if served == nil {
		if err := s.mayServe(ctx); err != nil {
			return err
		}
	}
	now := s.now()
	signing, err := s.signing(ctx, now)
	if signing == nil && served == nil {
		// The leader may be one that knows nothing of CAs (--webhook-certs=files) and stays until this replica is ready.
		if err = s.keeper.pass(ctx); err != nil {
			return err
		}
		signing, err = s.signing(ctx, now)
	}
	if err != nil {
		return err
	}
	reason := s.due(served, signing.certificate, now)
	if reason == "" {
		return nil
	}
	made, err := signing.issue(now, s.options.LeafLifetime, s.options.DNSNames)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.served = made
	s.mu.Unlock()
	s.log.Info("Signed a serving certificate", "reason", reason, "serial", fmt.Sprintf("%x", made.Leaf.SerialNumber),
		"notAfter", made.Leaf.NotAfter)
	return nil
}

// signing reads the CA that signs, or says why there is none. It does not come from the cache: one that lags would have a
// CA sign that is about to be dropped.
func (s *Signer) signing(ctx context.Context, now time.Time) (*ca, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.options.Namespace, Name: certs.SecretAuthority}
	if err := s.reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Secret %s", key)
	} else if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	current := decode(secret.Data, now).current
	if current == nil {
		return nil, fmt.Errorf("no CA in Secret %s signs yet: the next one waits until every API server trusts it", key)
	}
	return current, nil
}

// due says why another certificate is needed; an empty text when none is.
func (s *Signer) due(served *tls.Certificate, signing *x509.Certificate, now time.Time) string {
	switch {
	case served == nil:
		return "there is none"
	case served.Leaf.CheckSignatureFrom(signing) != nil:
		return "another CA signs"
	case now.After(served.Leaf.NotAfter.Add(-s.options.LeafLifetime / 3)):
		return "a third of its life is left"
	case now.Before(served.Leaf.NotBefore):
		return "the clock went back"
	}
	return ""
}

// mayServe refuses to start where cert-manager tells the API server whom to trust. A replica that serves goes on.
func (s *Signer) mayServe(ctx context.Context) error {
	configurations, err := certs.Configurations(ctx, s.reader)
	if err != nil {
		return fmt.Errorf("read the webhook configurations: %w", err)
	}
	return othersInject(configurations)
}

// othersInject is an error when cert-manager writes a caBundle: two who do so would undo each other's work.
func othersInject(configurations []certs.Configuration) error {
	for _, configuration := range configurations {
		if configuration.Injector != "" {
			return fmt.Errorf("%s %s has the annotation %s: cert-manager writes its caBundle, and --webhook-certs=self does too. "+
				"Deploy with config/self-certs, which leaves the annotation out, or use --webhook-certs=files",
				configuration.Kind, certs.WebhookConfiguration, configuration.Injector)
		}
	}
	return nil
}
