package snapshot

import (
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
)

// CertificateGrace is how long a certificate may take, at first and each time it is issued again, before it is called a
// trouble.
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

// CertificateLate says that a certificate is not issued although it had the time; if it still has, how much.
func CertificateLate(certificate *cmv1.Certificate, now time.Time) (late bool, wait time.Duration) {
	if CertificateReady(certificate) {
		return false, 0
	}
	since := certificate.CreationTimestamp.Time
	for _, condition := range certificate.Status.Conditions {
		if condition.Type == cmv1.CertificateConditionReady && condition.LastTransitionTime != nil &&
			condition.LastTransitionTime.After(since) {
			since = condition.LastTransitionTime.Time
		}
	}
	wait = CertificateGrace - now.Sub(since)
	return wait <= 0, max(wait, 0)
}
