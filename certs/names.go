// Package certs serves the operator's webhooks with the certificate that
// cert-manager keeps on disk, or with one of the operator's own (certs/authority),
// and knows whether the API server would accept it.
package certs

// Names of the objects in the operator's own namespace that config/certmanager and config/webhook make: a
// self-signed issuer signs a CA, an issuer of that CA signs the certificate that is served.
const (
	IssuerSelfSigned = "pg-operator-selfsigned"
	CertificateCA    = "pg-operator-ca"
	SecretCA         = "pg-operator-ca"
	IssuerCA         = "pg-operator-ca"

	// CertificateServing is the certificate whose CA is injected into the webhook configurations. It must be this
	// one and not CertificateCA: only the Secret of a leaf holds the CA that signed that leaf.
	CertificateServing = "pg-operator-serving"
	// SecretServing is mounted into the operator's pods.
	SecretServing = "pg-operator-serving-tls"

	// SecretAuthority holds the operator's own CA where cert-manager issues no certificate for it
	// (--webhook-certs=self), in the operator's namespace.
	SecretAuthority = "pg-operator-webhook-ca"

	// WebhookConfiguration is the name of our mutating and of our validating webhook configuration.
	WebhookConfiguration = "pg-operator"

	// ServiceWebhook and ServiceMetrics lead to the operator's pods; CertificateServing names both.
	ServiceWebhook = "pg-operator-webhook"
	ServiceMetrics = "pg-operator-metrics"
)

// Files of a Secret of type kubernetes.io/tls.
const (
	FileCertificate = "tls.crt"
	FileKey         = "tls.key"
	FileCA          = "ca.crt"
)
