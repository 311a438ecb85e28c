package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
)

// Metrics are for those whom Kubernetes lets read them, by a certificate that names their Service.
func TestMetrics(t *testing.T) {
	v := installed(t)
	o := launch(t, v.dir)
	eventually(t, o.ready)

	issued, err := secret(t.Context(), certs.SecretServing)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(issued.Data[certs.FileCA])
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: naming.ServiceHost(certs.ServiceMetrics, namespace), MinVersion: tls.VersionTLS12,
	}}}
	scrape := func(ctx context.Context, token string) (int, string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+o.metrics+"/metrics", http.NoBody)
		if err != nil {
			return 0, "", err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response.StatusCode, string(text), err
	}

	stranger, scraper := token(t, "stranger"), token(t, "scraper")
	if err := plane.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pg-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		who, token string
		want       int
	}{{"nobody", "", 401}, {"somebody without the right", stranger, 403}} {
		if code, _, err := scrape(t.Context(), tc.token); err != nil || code != tc.want {
			t.Errorf("%s gets %d %v, want %d", tc.who, code, err, tc.want)
		}
	}
	eventually(t, func(ctx context.Context) error { // The binding has to reach the API server's authorizer.
		code, text, err := scrape(ctx, scraper)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("the scraper gets %d: %w", code, err)
		}
		want := "pg_operator_serving_certificate_not_after_timestamp_seconds " +
			strconv.FormatFloat(float64(v.leaf.NotAfter.Unix()), 'g', -1, 64)
		for _, line := range []string{
			want, `leader_election_master_status{name="pg-operator"} 1`, "certwatcher_read_certificate_errors_total 0",
			untrusted("Validating", "validate", 0), untrusted("Mutating", "default", 0),
		} {
			if !strings.Contains(text, line) {
				return fmt.Errorf("no %q in the metrics", line)
			}
		}
		return nil
	})

	// A certificate whose CA is in no caBundle, half of it first.
	alien, key := selfSigned(t)
	roots.AppendCertsFromPEM(alien)
	for _, step := range []struct {
		key       []byte
		untrusted int
	}{{issued.Data[certs.FileKey], 0}, {key, 1}} {
		v.leaf = nil
		if err := v.put(&corev1.Secret{Data: map[string][]byte{certs.FileCertificate: alien, certs.FileKey: step.key}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func(ctx context.Context) error {
			_, text, err := scrape(ctx, scraper)
			if err != nil {
				return err
			}
			if strings.Contains(text, "certwatcher_read_certificate_errors_total 0") {
				return errors.New("the half pair has not been counted")
			}
			for _, line := range []string{untrusted("Validating", "validate", step.untrusted), untrusted("Mutating", "default", step.untrusted)} {
				if !strings.Contains(text, line) {
					return fmt.Errorf("no %q in the metrics", line)
				}
			}
			return nil
		})
	}
}

// selfSigned is a certificate of the right name that is its own CA.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(naming.ServiceHost(certs.ServiceMetrics, namespace), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// untrusted is the line of the metric for one of our webhooks.
func untrusted(kind, webhook string, value int) string {
	return fmt.Sprintf(`pg_operator_webhook_certificate_untrusted{configuration="%sWebhookConfiguration",webhook="%s.postgresclusters.db.example.com"} %d`,
		kind, webhook, value)
}

// token is one of a new account in the namespace default.
func token(t *testing.T, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := plane.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := plane.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
