package authority

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
)

const (
	namespace = "pg-operator-system"
	host      = certs.ServiceWebhook + "." + namespace + ".svc"
)

var usual = Options{
	Namespace: namespace, DNSNames: DNSNames(certs.ServiceWebhook, namespace),
	CALifetime: 120 * 24 * time.Hour, LeafLifetime: 7 * 24 * time.Hour,
}

// world is an API server, a clock that the test moves, a leader and two replicas.
type world struct {
	t       *testing.T
	now     time.Time
	api     client.WithWatch
	fail    func() bool // whether the next write fails
	keeper  *Keeper
	signers []*Signer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), fail: func() bool { return false }}
	broken := func() error {
		if w.fail() {
			return errors.New("the API server is not well")
		}
		return nil
	}
	w.api = fake.NewClientBuilder().WithScheme(scheme.Scheme).
		WithTypeConverters(applyconfigurations.NewTypeConverter(scheme.Scheme)).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
				return errors.Join(broken(), c.Create(ctx, object, o...)) // Written, and yet an error: a lost answer.
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.UpdateOption) error {
				if err := broken(); err != nil {
					return err
				}
				return c.Update(ctx, object, o...)
			},
			Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, o ...client.ApplyOption) error {
				if err := broken(); err != nil {
					return err
				}
				return c.Apply(ctx, object, append(o, client.FieldOwner(naming.FieldManagerAuthority))...)
			},
		}).Build()
	w.keeper = w.lead()
	for range 2 {
		w.signers = append(w.signers, w.signer())
	}
	return w
}

func (w *world) lead() *Keeper {
	return &Keeper{client: w.api, options: usual, log: logr.Discard(), now: w.clock}
}

func (w *world) signer() *Signer {
	return &Signer{reader: w.api, keeper: w.lead(), options: usual, log: logr.Discard(), now: w.clock}
}

func (w *world) clock() time.Time { return w.now }

func (w *world) install() {
	w.t.Helper()
	side, path := admissionregistrationv1.SideEffectClassNone, "/"
	config := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: certs.ServiceWebhook, Path: &path},
	}
	named := metav1.ObjectMeta{Name: certs.WebhookConfiguration}
	for _, object := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "default.example.com", ClientConfig: config, SideEffects: &side},
		}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "validate.example.com", ClientConfig: config, SideEffects: &side},
			{Name: "protect.example.com", ClientConfig: config, SideEffects: &side},
		}},
	} {
		if err := client.IgnoreNotFound(w.api.Delete(w.t.Context(), object)); err != nil {
			w.t.Fatal(err)
		}
		if err := w.api.Create(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) secret() *corev1.Secret {
	w.t.Helper()
	found := &corev1.Secret{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: certs.SecretAuthority}, found); err != nil {
		w.t.Fatal(err)
	}
	return found
}

// bundle is what the API server trusts, which must be the same for each webhook.
func (w *world) bundle() []byte {
	w.t.Helper()
	found, err := certs.Configurations(w.t.Context(), w.api)
	if err != nil {
		w.t.Fatal(err)
	}
	var first []byte
	for _, configuration := range found {
		for i, bundle := range configuration.Bundles {
			if first == nil && i == 0 {
				first = bundle.CA
			}
			if string(first) != string(bundle.CA) {
				w.t.Fatalf("%s: webhooks trust different CAs", w.now)
			}
		}
	}
	return first
}

// accepts verifies as an API server does.
func (w *world) accepts(s *Signer, bundle []byte) error {
	served, err := s.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = served.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: w.now})
	return err
}

var seeds = flag.Int("seeds", 1, "simulated years")

// A year that passes in any steps, writes that fail, leaders that change, a Secret that is deleted or spoilt:
// every certificate that a replica serves is accepted, by an API server that lags too, and no CA stays for ever.
func TestNoCertificateIsEverRefused(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
	}
}

func simulate(t *testing.T, random *rand.Rand) {
	w := newWorld(t)
	w.install()
	chance := func(percent int) bool { return random.IntN(100) < percent }
	steps := []time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour, 48 * time.Hour, 48 * time.Hour}
	authorities := map[string]bool{}
	var lagging []byte // what another API server trusts: what was trusted before the last step
	for n := 0; w.now.Year() < 2027; n++ {
		before := w.bundle()
		step := steps[random.IntN(len(steps))]
		w.now = w.now.Add(step)
		switch secret := (&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certs.SecretAuthority}}); {
		case chance(1):
			w.keeper = w.lead()
		case n > 20 && chance(1):
			if err := client.IgnoreNotFound(w.api.Delete(t.Context(), secret)); err != nil {
				t.Fatal(err)
			}
		case n > 20 && chance(1):
			secret = w.secret()
			secret.Data[certs.FileKey] = []byte("spoilt")
			if err := w.api.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		w.fail = func() bool { return chance(10) }
		err := w.keeper.pass(t.Context())
		w.fail = func() bool { return false }
		if err != nil { // It tries again soon.
			if err := w.keeper.pass(t.Context()); err != nil {
				t.Fatalf("%s: %v", w.now, err)
			}
		}
		for _, signer := range w.signers {
			if step < time.Hour && chance(30) {
				continue // It has not looked since.
			}
			if err := signer.pass(t.Context()); err != nil && n > 20 && signer.served == nil {
				t.Fatalf("%s: %v", w.now, err)
			}
		}
		// An API server lags by less than it takes to settle.
		if lagging = before; step >= time.Minute {
			lagging = w.bundle()
		}
		for i, signer := range w.signers {
			for _, bundle := range [][]byte{w.bundle(), lagging} {
				if signer.served == nil || len(bundle) == 0 {
					continue
				}
				authorities[string(signer.served.Leaf.AuthorityKeyId)] = true
				if err := w.accepts(signer, bundle); err != nil {
					t.Fatalf("%s: replica %d is refused: %v", w.now, i, err)
				}
			}
		}
	}
	if got := len(authorities); got < 3 {
		t.Errorf("%d CAs signed in a year, want 3 or more", got)
	}
	if got := len(certs.ParseBundle(w.bundle())); got > 6 {
		t.Errorf("%d CAs are trusted at the end", got)
	}
}
