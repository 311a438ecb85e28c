package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache holds the two webhook configurations and, of others, nothing but what it was made for. It is one of its own so
// that the operator starts and serves also where it may not read them. Every replica runs it.
type Cache struct{ cache.Cache }

// NewCache makes a Cache that also holds others.
func NewCache(
	ctx context.Context, config *rest.Config, scheme *runtime.Scheme, others map[client.Object]cache.ByObject,
) (*Cache, error) {
	options := cache.Options{
		Scheme: scheme, ByObject: others, DefaultTransform: cache.TransformStripManagedFields(),
	}
	if options.ByObject == nil {
		options.ByObject = map[client.Object]cache.ByObject{}
	}
	for _, object := range WebhookKinds() {
		options.ByObject[object] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", WebhookConfiguration)}
	}
	made, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("make the cache of the webhook configurations: %w", err)
	}
	for _, object := range WebhookKinds() {
		if _, err := made.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watch the webhook configurations: %w", err)
		}
	}
	return &Cache{Cache: made}, nil
}

// NeedLeaderElection says no: each replica watches.
func (*Cache) NeedLeaderElection() bool { return false }

// Trust is the metric that tells whether the API server would believe the served certificate.
type Trust struct {
	source Source
	reader client.Reader
	now    func() time.Time
}

var untrusted = prometheus.NewDesc("pg_operator_webhook_certificate_untrusted",
	"1 when the API server would not trust, by the caBundle of the webhook, the certificate that this operator serves, else 0.",
	[]string{"configuration", "webhook"}, nil)

// NewTrust compares the source's certificate with what reader, a cache, says of the configurations.
func NewTrust(source Source, reader client.Reader) *Trust {
	return &Trust{source: source, reader: reader, now: time.Now}
}

// Describe implements prometheus.Collector.
func (t *Trust) Describe(all chan<- *prometheus.Desc) { all <- untrusted }

// Collect implements prometheus.Collector. What is not known is not told: neither without a certificate, which readiness
// tells, nor before the configurations were read.
func (t *Trust) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	certificate, err := t.source.GetCertificate(nil)
	if err != nil {
		return
	}
	found, err := Configurations(ctx, t.reader)
	if err != nil {
		return
	}
	for _, configuration := range found {
		for _, bundle := range configuration.Bundles {
			value := 0.0
			if !trusted(certificate, bundle.CA, t.now()) {
				value = 1
			}
			metrics <- prometheus.MustNewConstMetric(untrusted, prometheus.GaugeValue, value, configuration.Kind, bundle.Webhook)
		}
	}
}

// trusted verifies the chain alone, without names.
func trusted(certificate *tls.Certificate, bundle []byte, now time.Time) bool {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range certificate.Certificate[1:] {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(parsed)
		}
	}
	_, err := certificate.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}
