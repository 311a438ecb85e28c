package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

type fixed struct {
	*Files
	certificate *tls.Certificate
}

func (f fixed) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if f.certificate == nil {
		return nil, errors.New("none")
	}
	return f.certificate, nil
}

func TestTrust(t *testing.T) {
	now := time.Now()
	begin, end := now.Add(-time.Hour), now.Add(time.Hour)
	root, other := issue(t, 1, "root", begin, end), issue(t, 2, "other", begin, end)
	chain := signed(t, begin, end)
	single := &tls.Certificate{Certificate: [][]byte{root.leaf.Raw}, Leaf: root.leaf}
	tests := map[string]struct {
		served *tls.Certificate
		bundle []byte
		want   string // of the metric; empty: it is absent
	}{
		"trusted":              {served: single, bundle: root.certificate, want: "0"},
		"trusted among others": {served: single, bundle: slices.Concat(other.certificate, root.certificate), want: "0"},
		"another CA":           {served: single, bundle: other.certificate, want: "1"},
		"no bundle yet":        {served: single, want: "1"},
		"not a bundle":         {served: single, bundle: []byte("x"), want: "1"},
		"chain":                {served: chain.served, bundle: chain.root, want: "0"},
		"chain without middle": {served: chain.bare, bundle: chain.root, want: "1"},
		"nothing served":       {bundle: root.certificate},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
				&admissionregistrationv1.ValidatingWebhookConfiguration{
					ObjectMeta: metav1.ObjectMeta{Name: WebhookConfiguration},
					Webhooks: []admissionregistrationv1.ValidatingWebhook{{
						Name: "validate", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: tc.bundle},
					}},
				}).Build()
			var want string
			if tc.want != "" {
				want = "# TYPE pg_operator_webhook_certificate_untrusted gauge\n" +
					`pg_operator_webhook_certificate_untrusted{configuration="ValidatingWebhookConfiguration",webhook="validate"} ` + tc.want + "\n"
				want = "# HELP pg_operator_webhook_certificate_untrusted 1 when the API server would not trust, by the caBundle of " +
					"the webhook, the certificate that this operator serves, else 0.\n" + want
			}
			if err := testutil.CollectAndCompare(NewTrust(fixed{certificate: tc.served}, reader), strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		})
	}
}

type chained struct {
	served, bare *tls.Certificate
	root         []byte
}

// signed is a leaf of an intermediate CA of a root.
func signed(t *testing.T, begin, end time.Time) chained {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	sign := func(name string, isCA bool, parent *x509.Certificate, own, by *ecdsa.PrivateKey) *x509.Certificate {
		template := &x509.Certificate{
			DNSNames: []string{name}, NotBefore: begin, NotAfter: end, IsCA: isCA, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		template.Subject.CommonName = name
		if parent == nil {
			parent = template
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	rootKey, middleKey := key(), key()
	root := sign("root", true, nil, rootKey, rootKey)
	middle := sign("middle", true, root, middleKey, rootKey)
	leaf := sign(host, false, middle, key(), middleKey)
	return chained{
		served: &tls.Certificate{Certificate: [][]byte{leaf.Raw, middle.Raw}, Leaf: leaf},
		bare:   &tls.Certificate{Certificate: [][]byte{leaf.Raw}, Leaf: leaf},
		root:   encode(root),
	}
}
