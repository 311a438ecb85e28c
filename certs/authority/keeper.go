package authority

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/certs"
)

// Keeper keeps the Secret and the caBundle of every webhook. The leader runs it, and a replica that has no certificate.
// Two at a time do no harm, only work in vain: what one has read and another has changed is not written.
type Keeper struct {
	client  client.Client
	options Options
	changed <-chan struct{}
	log     logr.Logger
	now     func() time.Time

	mu sync.Mutex
	// trustedSince is when the API server was first seen to trust all that must be trusted; zero: it does not.
	trustedSince time.Time
}

// NeedLeaderElection says yes: one is enough.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start works until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	loop(ctx, k.options, k.changed, k.log, k.pass)
	return nil
}

// pass takes every step that is possible now.
func (k *Keeper) pass(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		moved, err := k.step(ctx)
		// Somebody else wrote, or was first to create: look again.
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			k.log.V(1).Info("Looking again", "reason", err.Error())
			continue
		}
		if err != nil || !moved {
			return err
		}
	}
}

// step reads, spreads what is known and takes one step. The configurations are read before the Secret, and applied with
// the version read: a leader that was stopped in between, and is none any more, cannot put an old bundle over a new one.
func (k *Keeper) step(ctx context.Context) (moved bool, err error) {
	configurations, err := certs.Configurations(ctx, k.client)
	if err != nil {
		return false, fmt.Errorf("read the webhook configurations: %w", err)
	}
	if err = othersInject(configurations); err != nil {
		return false, err
	}
	secret, err := k.secret(ctx)
	if err != nil {
		return false, err
	}
	now := k.now()
	known := decode(secret.Data, now)
	if moved, err = k.spread(ctx, configurations, known); err != nil || moved {
		return moved, err
	}
	next, what, err := known.advance(k.options, k.facts(now, configurations))
	if err != nil || what == "" {
		return false, err
	}
	if err := k.store(ctx, secret, next); err != nil {
		return false, err
	}
	k.log.Info(what, "trustedCAs", len(next.trusted))
	return true, nil
}

func (k *Keeper) facts(now time.Time, configurations []certs.Configuration) facts {
	if k.trustedSince.IsZero() || now.Before(k.trustedSince) {
		k.trustedSince = now
	}
	f := facts{now: now, trustedFor: now.Sub(k.trustedSince)}
	for _, configuration := range configurations {
		for _, bundle := range configuration.Bundles {
			f.found = append(f.found, certs.ParseBundle(bundle.CA)...)
		}
	}
	return f
}

// secret is the one that holds the CA, without a version when there is none.
func (k *Keeper) secret(ctx context.Context) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: k.options.Namespace, Name: certs.SecretAuthority}
	found := &corev1.Secret{}
	err := k.client.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"app.kubernetes.io/name": "pg-operator"},
		}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	return found, nil
}

// store writes over nothing but the version that was read.
func (k *Keeper) store(ctx context.Context, secret *corev1.Secret, s state) (err error) {
	if secret.Data, err = s.encode(); err != nil {
		return err
	}
	if secret.ResourceVersion == "" {
		err = k.client.Create(ctx, secret)
	} else {
		err = k.client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("store the CA: %w", err)
	}
	return nil
}

// spread makes the caBundle of every webhook what the Secret says, and tells whether it wrote. Others' CAs are in the
// Secret from when it was made on; with that, and as nobody else may inject, force takes nothing from anybody.
func (k *Keeper) spread(ctx context.Context, configurations []certs.Configuration, known state) (wrote bool, err error) {
	if len(known.trusted) == 0 {
		return false, nil
	}
	bundle, err := known.bundle()
	if err != nil {
		return false, err
	}
	for _, configuration := range configurations {
		same := true
		for _, old := range configuration.Bundles {
			same = same && known.spread(old.CA)
		}
		if same {
			continue
		}
		k.trustedSince = time.Time{}
		if err := k.client.Apply(ctx, intent(configuration, bundle), client.ForceOwnership); err != nil {
			return wrote, fmt.Errorf("write the caBundle of %s %s: %w", configuration.Kind, certs.WebhookConfiguration, err)
		}
		k.log.Info("Wrote the CAs that the API server trusts", "kind", configuration.Kind, "trustedCAs", len(known.trusted))
		wrote = true
	}
	return wrote, nil
}

// intent names every webhook, because a bundle that an apply leaves out is removed.
func intent(configuration certs.Configuration, bundle []byte) runtime.ApplyConfiguration {
	if configuration.Kind == "MutatingWebhookConfiguration" {
		applied := admissionregistrationv1ac.MutatingWebhookConfiguration(certs.WebhookConfiguration).
			WithResourceVersion(configuration.ResourceVersion)
		for _, old := range configuration.Bundles {
			applied.WithWebhooks(admissionregistrationv1ac.MutatingWebhook().WithName(old.Webhook).
				WithClientConfig(admissionregistrationv1ac.WebhookClientConfig().WithCABundle(bundle...)))
		}
		return applied
	}
	applied := admissionregistrationv1ac.ValidatingWebhookConfiguration(certs.WebhookConfiguration).
		WithResourceVersion(configuration.ResourceVersion)
	for _, old := range configuration.Bundles {
		applied.WithWebhooks(admissionregistrationv1ac.ValidatingWebhook().WithName(old.Webhook).
			WithClientConfig(admissionregistrationv1ac.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return applied
}
