package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
)

// leafLifetime makes a certificate live long enough for a busy machine to renew it and short enough to wait for its end.
const leafLifetime = 10 * time.Second

// selfFlags are those of an operator that signs its own certificate.
func selfFlags(caLifetime time.Duration) []string {
	return []string{
		"--webhook-certs=self", "--webhook-ca-lifetime=" + caLifetime.String(),
		"--webhook-cert-lifetime=" + leafLifetime.String(), "--shutdown-delay=2s",
	}
}

// forget deletes what earlier tests left, so that config/self-certs is installed as if for the first time.
func forget(t *testing.T) {
	t.Helper()
	for _, object := range append(certs.WebhookKinds(), &corev1.Secret{}, &coordinationv1.Lease{}) {
		object.SetName(certs.WebhookConfiguration)
		switch object.(type) {
		case *corev1.Secret:
			object.SetName(certs.SecretAuthority)
			object.SetNamespace(namespace)
		case *coordinationv1.Lease:
			object.SetNamespace(namespace)
		}
		if err := client.IgnoreNotFound(plane.Client.Delete(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
	}
}

func applySelf(t *testing.T, flags ...string) {
	t.Helper()
	plane.Kubectl(t, append([]string{"apply", "-k", "testdata/self"}, flags...)...)
}

// shown is the certificate that an operator serves, which the API server must trust.
func shown(t *testing.T, o *operator) *x509.Certificate {
	t.Helper()
	var leaf *x509.Certificate
	eventually(t, func(ctx context.Context) (err error) {
		leaf, err = review(ctx, o.webhook)
		return err
	})
	return leaf
}

// rotated waits until an operator serves a certificate of another CA than before.
func rotated(t *testing.T, o *operator, before *x509.Certificate) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		now, err := review(ctx, o.webhook)
		if err == nil && bytes.Equal(now.AuthorityKeyId, before.AuthorityKeyId) {
			err = errors.New("the CA before still signs")
		}
		return err
	})
}

// Two operators start together where nothing is, and one CA signs for both. Then the CA is thrown away, the operators are
// replaced by others, the CA is replaced because its time has come, and certificates are renewed: of 20 admissions a
// second to each operator, each on a fresh connection, and 20 through the API server, none fails.
func TestSelfSigned(t *testing.T) {
	forget(t)
	applySelf(t, "--server-side")
	var old, next []*operator
	for range 2 {
		old = append(old, launch(t, "", selfFlags(time.Hour)...))
	}
	for _, o := range old {
		o.serve(t)
	}
	eventually(t, admits)
	first := shown(t, old[0])
	oneAuthority(t, old)

	through := startLoad(t, admits)
	loads := []*load{through, startLoad(t, reviews(old[0])), startLoad(t, reviews(old[1]))}
	thrown, err := secret(t.Context(), certs.SecretAuthority)
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Client.Delete(t.Context(), thrown); err != nil {
		t.Fatal(err)
	}
	for _, o := range old {
		rotated(t, o, first)
	}
	if got := authorities(t); got != 2 {
		t.Errorf("%d CAs are trusted, want the one before and the present one", got)
	}
	second := shown(t, old[0])
	admitted := loads[1].stop(t) + loads[2].stop(t)

	// An hour is less than a third of 24, so those who come replace the CA as soon as they may.
	for range 2 {
		next = append(next, launch(t, "", selfFlags(24*time.Hour)...))
	}
	for i, o := range next {
		o.serve(t)
		loads[1+i] = startLoad(t, reviews(o))
		if code := old[i].stop(t); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	}
	for _, o := range next {
		rotated(t, o, second)
	}
	third := shown(t, next[0])
	reapplies(t)

	// The certificate is renewed, and what no certificate needs any more is dropped.
	eventually(t, func(ctx context.Context) error {
		if got := authorities(t); got != 1 {
			return fmt.Errorf("%d CAs are trusted", got)
		}
		now, err := review(ctx, next[0].webhook)
		if err == nil && now.Equal(third) {
			err = errors.New("the certificate has not been renewed")
		}
		return err
	})
	if now := shown(t, next[0]); !bytes.Equal(now.AuthorityKeyId, third.AuthorityKeyId) {
		t.Error("the CA was replaced too early")
	}
	for _, l := range loads {
		admitted += l.stop(t)
	}
	t.Logf("%d admissions, none failed", admitted)
}

// oneAuthority checks what is served against what the Secret holds.
func oneAuthority(t *testing.T, operators []*operator) {
	t.Helper()
	found, err := secret(t.Context(), certs.SecretAuthority)
	if err != nil {
		t.Fatal(err)
	}
	if got := certs.ParseBundle(found.Data[certs.FileCA]); len(got) != 1 || authorities(t) != 1 {
		t.Fatalf("%d CAs in the Secret, %d trusted, want one", len(got), authorities(t))
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(found.Data[certs.FileCA])
	serials := map[string]bool{}
	for _, o := range operators {
		leaf := shown(t, o)
		serials[leaf.SerialNumber.String()] = true
		if age := time.Since(leaf.NotBefore); age < 9*time.Minute {
			t.Errorf("the certificate is valid since %s only: an API server whose clock is behind refuses it", age)
		}
		// Prometheus knows the metrics' server by the same CA.
		conn, err := tls.Dial("tcp", o.metrics, &tls.Config{
			RootCAs: roots, ServerName: naming.ServiceHost(certs.ServiceMetrics, namespace), MinVersion: tls.VersionTLS12,
		})
		if err != nil {
			t.Fatalf("metrics: %v", err)
		}
		_ = conn.Close()
	}
	if len(serials) != len(operators) {
		t.Error("operators share a certificate: its key has left one of them")
	}
}

// reapplies applies the manifests in every way, which must leave caBundle alone.
func reapplies(t *testing.T) {
	t.Helper()
	before := authorities(t)
	applySelf(t, "--server-side")
	applySelf(t, "--server-side", "--force-conflicts")
	applySelf(t)
	if after := authorities(t); after != before {
		t.Errorf("%d CAs are trusted after applying the manifests again, %d were before", after, before)
	}
}

// From cert-manager to the operator's own certificate and back, by applying other manifests: nothing fails.
func TestMoveToSelfAndBack(t *testing.T) {
	forget(t)
	v := installed(t)
	before := launch(t, v.dir, "--shutdown-delay=2s")
	before.serve(t)
	eventually(t, admits)
	through := startLoad(t, admits)
	applySelf(t, "--server-side")
	after := launch(t, "", selfFlags(time.Hour)...)
	// In a roll the old one leads, and stays, until the new one is ready.
	replaces := func(before, after *operator) {
		t.Helper()
		after.serve(t)
		through.passes(t, 10)
		if code := before.stop(t); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		through.passes(t, 10)
	}
	replaces(before, after)
	plane.Kubectl(t, "apply", "--server-side", "-k", "../../config/default")
	replaces(after, launch(t, mount(t).dir))
	t.Logf("%d admissions, none failed", through.stop(t))
}

// Where cert-manager writes caBundle, the operator does not: it says so and does not become ready.
func TestSelfBesideInjector(t *testing.T) {
	forget(t)
	installed(t)
	o := launch(t, "", selfFlags(time.Hour)...)
	eventually(t, func(ctx context.Context) error {
		if err := o.ready(ctx); err == nil || !strings.Contains(err.Error(), "[-]webhook") {
			return fmt.Errorf("ready, or not for another reason: %w", err)
		}
		if !strings.Contains(o.log(), "cert-manager.io/inject-ca-from: cert-manager writes its caBundle") {
			return errors.New("the log does not say why")
		}
		return nil
	})
	leads(t, "")
	for _, object := range certs.WebhookKinds() {
		if err := plane.Client.Get(t.Context(), client.ObjectKey{Name: certs.WebhookConfiguration}, object); err != nil {
			t.Fatal(err)
		}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == naming.FieldManagerAuthority && entry.Operation == metav1.ManagedFieldsOperationApply {
				t.Error("wrote a caBundle that cert-manager writes")
			}
		}
	}
}
