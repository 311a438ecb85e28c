package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
	"github.com/acme/pg-operator/webhooks"
)

// review asks an operator as the API server would on a fresh connection: it trusts what is injected into the webhook
// configuration at that moment, and nothing else. It returns the certificate it was shown.
func review(ctx context.Context, address string) (*x509.Certificate, error) {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := plane.Client.Get(ctx, client.ObjectKey{Name: "pg-operator"}, config); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Webhooks[0].ClientConfig.CABundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: naming.ServiceHost(certs.ServiceWebhook, namespace), MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	object := []byte(`{"apiVersion":"db.example.com/v1alpha1","kind":"PostgresCluster","metadata":{"name":"a","namespace":"b"},` +
		`"spec":{"replicas":1,"version":"17","storage":"1Gi"}}`)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Name: "a", Namespace: "b", Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		return nil, err
	}
	url := "https://" + address + webhooks.PathValidate
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
		return nil, fmt.Errorf("answer %d: %s", response.StatusCode, text)
	}
	return response.TLS.PeerCertificates[0], nil
}

// reviews asks one operator.
func reviews(o *operator) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := review(ctx, o.webhook)
		return err
	}
}

// Leaf and CA are renewed under 20 admissions a second, each on a fresh connection. One operator gets new files as soon
// as they are there, the other, whose kubelet lags, only at the end: neither fails one.
func TestRotation(t *testing.T) {
	current := installed(t)
	lagging := mount(t)
	ahead, behind := launch(t, current.dir), launch(t, lagging.dir)
	ahead.serve(t)
	behind.serve(t)
	eventually(t, admits)

	var loads []*load
	for _, o := range []*operator{ahead, behind} {
		loads = append(loads, startLoad(t, reviews(o)))
	}
	loads = append(loads, startLoad(t, admits))

	serves := func(o *operator, v *volume) {
		t.Helper()
		changed := time.Now()
		eventually(t, func(ctx context.Context) error {
			served, err := review(ctx, o.webhook)
			if err == nil && !served.Equal(v.leaf) {
				err = fmt.Errorf("serves %x, not %x", served.SerialNumber, v.leaf.SerialNumber)
			}
			return err
		})
		if took := time.Since(changed); took > 15*time.Second {
			t.Errorf("the new certificate was served %s after the files changed", took)
		}
		if err := o.ready(t.Context()); err != nil {
			t.Errorf("not ready after the rotation: %v", err)
		}
	}

	reissue(t, certs.SecretServing)
	remount(t, current)
	serves(ahead, current)
	loads[0].passes(t, 20)

	// A new CA, then a leaf of it. The old CA stays trusted, for those who are behind.
	before := authorities(t)
	reissue(t, certs.SecretCA)
	reissue(t, certs.SecretServing)
	eventually(t, func(context.Context) error {
		if now := authorities(t); now <= before {
			return errors.New("the new CA has not been injected")
		}
		return nil
	})
	remount(t, current)
	serves(ahead, current)
	loads[1].passes(t, 20)
	remount(t, lagging)
	serves(behind, lagging)

	for _, l := range loads {
		l.passes(t, 20)
		t.Logf("%d admissions, none failed", l.stop(t))
	}
}

func remount(t *testing.T, v *volume) {
	t.Helper()
	eventually(t, v.sync)
}

// authorities counts the CAs that the API server trusts for our webhook.
func authorities(t *testing.T) int {
	t.Helper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := plane.Client.Get(t.Context(), client.ObjectKey{Name: "pg-operator"}, config); err != nil {
		t.Fatal(err)
	}
	return bytes.Count(config.Webhooks[0].ClientConfig.CABundle, []byte("BEGIN CERTIFICATE"))
}

// Whoever applies our manifests again, in whichever way, leaves the injected CA alone.
func TestReapplyKeepsTheInjectedCA(t *testing.T) {
	installed(t)
	eventually(t, func(context.Context) error {
		if authorities(t) == 0 {
			return errors.New("no CA has been injected")
		}
		return nil
	})
	before := authorities(t)
	plane.Kubectl(t, "apply", "--server-side", "-k", "../../config/default")
	plane.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", "../../config/default")
	plane.Kubectl(t, "apply", "-k", "../../config/default")
	if after := authorities(t); after != before {
		t.Errorf("%d CAs are trusted, %d were before", after, before)
	}
}
