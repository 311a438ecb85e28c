package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// injectors are the annotations by which cert-manager's cainjector takes caBundle for its own.
const injectors = "cert-manager.io/inject-"

// Bundle is the caBundle of one webhook: the CAs by which the API server knows its server.
type Bundle struct {
	Webhook string
	CA      []byte
}

// Configuration is what a webhook configuration in the API server says of certificates.
type Configuration struct {
	Kind            string
	ResourceVersion string
	Injector        string // annotation that makes cainjector write the bundles; empty: none
	Bundles         []Bundle
}

// WebhookKinds are the kinds of the configurations named WebhookConfiguration.
func WebhookKinds() []client.Object {
	return []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	}
}

// Configurations reads those that exist.
func Configurations(ctx context.Context, reader client.Reader) ([]Configuration, error) {
	var found []Configuration
	for _, object := range WebhookKinds() {
		err := reader.Get(ctx, client.ObjectKey{Name: WebhookConfiguration}, object)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			found = append(found, configuration(object))
		}
	}
	return found, nil
}

func configuration(object runtime.Object) Configuration {
	var c Configuration
	switch object := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		c = Configuration{Kind: "MutatingWebhookConfiguration", ResourceVersion: object.ResourceVersion, Injector: injector(object)}
		for i := range object.Webhooks {
			c.Bundles = append(c.Bundles, Bundle{object.Webhooks[i].Name, object.Webhooks[i].ClientConfig.CABundle})
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		c = Configuration{Kind: "ValidatingWebhookConfiguration", ResourceVersion: object.ResourceVersion, Injector: injector(object)}
		for i := range object.Webhooks {
			c.Bundles = append(c.Bundles, Bundle{object.Webhooks[i].Name, object.Webhooks[i].ClientConfig.CABundle})
		}
	}
	return c
}

func injector(object client.Object) string {
	for name := range object.GetAnnotations() {
		if strings.HasPrefix(name, injectors) {
			return name
		}
	}
	return ""
}

// ParseBundle returns the certificates in PEM text and passes over whatever else is in it, as the API server does.
func ParseBundle(text []byte) []*x509.Certificate {
	var found []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return found
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			found = append(found, certificate)
		}
	}
}
