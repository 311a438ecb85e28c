package snapshot

import (
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
)

// CertificateGrace is how long a certificate may take before it is called a trouble.
const CertificateGrace = 10 * time.Second

// CertificateReady says that a certificate is issued and valid.
func CertificateReady(certificate *cmv1.Certificate) bool {
	for _, condition := range certificate.Status.Conditions {
		if condition.Type == cmv1.CertificateConditionReady {
			return condition.Status == cmmetav1.ConditionTrue
		}
	}
	return false
}
