package authority

import (
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/certs"
)

const day = 24 * time.Hour

func (w *world) pass() {
	w.t.Helper()
	if err := w.keeper.pass(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, signer := range w.signers {
		if err := signer.pass(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// keys are those of the Secret, sorted.
func (w *world) keys() []string { return slices.Sorted(maps.Keys(w.secret().Data)) }

func (w *world) trusted() int { return len(certs.ParseBundle(w.bundle())) }

func (w *world) leaf(i int) *x509.Certificate {
	w.t.Helper()
	served, err := w.signers[i].GetCertificate(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return served.Leaf
}

// The first CA signs at once, because nothing can break; the second waits and overlaps.
func TestLife(t *testing.T) {
	w := newWorld(t)
	w.install()
	w.pass()
	first := w.leaf(0)
	if other := w.leaf(1); other.SerialNumber.Cmp(first.SerialNumber) == 0 || first.PublicKey == other.PublicKey {
		t.Error("two replicas share a certificate")
	}
	if got := first.NotBefore; !got.Equal(w.now.Add(-backdate)) {
		t.Errorf("valid from %s, want %s before now", got, backdate)
	}
	if got := first.NotAfter; !got.Equal(w.now.Add(usual.LeafLifetime)) {
		t.Errorf("valid until %s", got)
	}
	for _, name := range []string{
		host, host + ".cluster.local",
		certs.ServiceMetrics + "." + namespace + ".svc", certs.ServiceMetrics + "." + namespace + ".svc.cluster.local",
	} {
		if err := first.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}

	version := w.secret().ResourceVersion
	w.now = w.now.Add(4 * day)
	w.pass()
	if w.leaf(0) != first || w.secret().ResourceVersion != version {
		t.Error("something changed before its time")
	}
	w.now = w.now.Add(day) // More than two thirds of 7 days.
	w.pass()
	if w.leaf(0) == first {
		t.Error("the certificate was not renewed at two thirds of its life")
	}
	if w.trusted() != 1 {
		t.Errorf("%d CAs are trusted", w.trusted())
	}

	w.now = w.now.Add(76 * day) // 81 of 120 days.
	w.pass()
	old := w.leaf(0)
	if want := []string{"ca.crt", "next.crt", "next.key", "signing-since", "tls.crt", "tls.key"}; !slices.Equal(w.keys(), want) {
		t.Errorf("the Secret has %v, want %v", w.keys(), want)
	}
	if w.trusted() != 2 {
		t.Errorf("%d CAs are trusted, want the present one and the next", w.trusted())
	}
	w.now = w.now.Add(usual.settle())
	w.pass()
	if current := w.leaf(0); slices.Equal(current.AuthorityKeyId, old.AuthorityKeyId) {
		t.Error("the next CA does not sign")
	}
	if w.trusted() != 2 {
		t.Error("the CA before is not trusted any more")
	}
	w.now = w.now.Add(usual.LeafLifetime + time.Second)
	w.pass()
	if w.trusted() != 1 {
		t.Errorf("%d CAs are trusted after the last certificate of the one before has ended", w.trusted())
	}
}

// A virtual machine that was suspended longer than everything lasts gets new ones in one pass.
func TestSuspended(t *testing.T) {
	w := newWorld(t)
	w.install()
	w.pass()
	w.now = w.now.Add(3 * 365 * day)
	w.pass()
	if err := w.accepts(w.signers[0], w.bundle()); err != nil || w.trusted() != 1 {
		t.Errorf("%d CAs are trusted: %v", w.trusted(), err)
	}
}

func TestClockWentBack(t *testing.T) {
	w := newWorld(t)
	w.install()
	w.pass()
	w.now = w.now.Add(5 * day)
	w.pass()
	w.now = w.now.Add(-day)
	w.pass()
	if err := w.accepts(w.signers[0], w.bundle()); err != nil {
		t.Error(err)
	}
}

// What was trusted before, say cert-manager's CA, stays trusted as long as somebody may serve its certificates.
func TestTakesOver(t *testing.T) {
	w := newWorld(t)
	w.install()
	foreign, err := newCA(w.now, 50*day)
	if err != nil {
		t.Fatal(err)
	}
	served, err := foreign.issue(w.now, 10*day, usual.DNSNames)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := foreign.encode()
	if err != nil {
		t.Fatal(err)
	}
	found := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: certs.WebhookConfiguration}, found); err != nil {
		t.Fatal(err)
	}
	for i := range found.Webhooks {
		found.Webhooks[i].ClientConfig.CABundle = text
	}
	if err := w.api.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	other := w.signer()
	other.served = served
	if err := w.keeper.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.signers[0].pass(t.Context()); err == nil || !strings.Contains(err.Error(), "waits until every API server trusts it") {
		t.Errorf("signed with a CA that others may not know yet: %v", err)
	}
	w.now = w.now.Add(usual.settle())
	w.pass()
	for _, signer := range []*Signer{other, w.signers[0]} {
		if err := w.accepts(signer, w.bundle()); err != nil {
			t.Error(err)
		}
	}
	w.now = w.now.Add(usual.LeafLifetime + time.Second)
	w.pass()
	if err := w.accepts(other, w.bundle()); err == nil {
		t.Error("the CA that was found is trusted for ever")
	}
}

func TestCertManagerInjects(t *testing.T) {
	w := newWorld(t)
	w.install()
	annotate := func(value map[string]string) {
		t.Helper()
		found := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := w.api.Get(t.Context(), client.ObjectKey{Name: certs.WebhookConfiguration}, found); err != nil {
			t.Fatal(err)
		}
		found.Annotations = value
		if err := w.api.Update(t.Context(), found); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"inject-ca-from", "inject-ca-from-secret", "inject-apiserver-ca"} {
		annotate(map[string]string{"cert-manager.io/" + name: "a/b"})
		if err := w.keeper.pass(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w.bundle() != nil {
		t.Error("a bundle was written beside cert-manager")
	}
	annotate(nil)
	w.pass()
	served := w.leaf(0)

	// Later, who serves goes on, but nobody new begins.
	annotate(map[string]string{"cert-manager.io/inject-ca-from": "a/b"})
	late := w.signer()
	if err := late.pass(t.Context()); err == nil || !strings.Contains(err.Error(), "config/self-certs") {
		t.Errorf("began to serve: %v", err)
	}
	if _, err := late.GetCertificate(nil); err == nil || !strings.Contains(err.Error(), "inject-ca-from") {
		t.Errorf("readiness would not say why: %v", err)
	}
	if err := w.signers[0].pass(t.Context()); err != nil || w.leaf(0) != served {
		t.Errorf("a replica that served does not go on: %v", err)
	}
}

// Without a webhook configuration nobody calls, and the first that comes is told.
func TestConfigurationsComeLater(t *testing.T) {
	w := newWorld(t)
	w.pass()
	w.install()
	w.pass()
	if err := w.accepts(w.signers[0], w.bundle()); err != nil {
		t.Error(err)
	}
}

// Who wants no overlap, because a key has leaked, takes the webhook configurations away first.
func TestLeakedKey(t *testing.T) {
	w := newWorld(t)
	w.install()
	w.pass()
	leaked := w.signer()
	leaked.served = w.signers[0].served
	for _, object := range append(certs.WebhookKinds(), w.secret()) {
		if object.GetName() == "" {
			object.SetName(certs.WebhookConfiguration)
		}
		if err := w.api.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.pass()
	w.install()
	w.pass()
	if err := w.accepts(leaked, w.bundle()); err == nil {
		t.Error("the leaked key is trusted")
	}
	if err := w.accepts(w.signers[0], w.bundle()); err != nil {
		t.Error(err)
	}
}

func TestSecretOfSomebodyElse(t *testing.T) {
	good, err := newCA(time.Now(), day)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newCA(time.Now(), day)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	_, wrong, err := other.encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]map[string][]byte{
		"nothing":      nil,
		"no key":       {"tls.crt": certificate},
		"wrong key":    {"tls.crt": certificate, "tls.key": wrong},
		"no text":      {"tls.crt": []byte("a"), "tls.key": []byte("b"), "ca.crt": []byte("c")},
		"cut":          {"tls.crt": certificate[:100], "tls.key": key},
		"another time": {"signing-since": []byte("yesterday")},
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.install()
			if err := w.api.Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certs.SecretAuthority, Labels: map[string]string{"a": "b"}}, Data: data,
			}); err != nil {
				t.Fatal(err)
			}
			w.pass()
			if err := w.accepts(w.signers[0], w.bundle()); err != nil {
				t.Error(err)
			}
			if w.secret().Labels["a"] != "b" {
				t.Error("a label of somebody else is gone")
			}
		})
	}
}

func TestLifetimes(t *testing.T) {
	tests := map[string]struct {
		ca, leaf time.Duration
		want     string
	}{
		"usual":          {ca: 365 * day, leaf: 7 * day},
		"shortest":       {ca: 24 * time.Second, leaf: 6 * time.Second},
		"leaf too short": {ca: day, leaf: 5 * time.Second, want: "--webhook-cert-lifetime=5s"},
		"CA too short":   {ca: 27 * day, leaf: 7 * day, want: "--webhook-ca-lifetime=648h0m0s"},
		"negative":       {ca: -day, leaf: -day, want: "--webhook-cert-lifetime"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := Options{CALifetime: tc.ca, LeafLifetime: tc.leaf}.Validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
