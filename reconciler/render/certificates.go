package render

import (
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmv1ac "github.com/cert-manager/cert-manager/pkg/client/applyconfigurations/certmanager/v1"
	cmmetav1ac "github.com/cert-manager/cert-manager/pkg/client/applyconfigurations/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Lifetimes. A CA is renewed while it still outlives every certificate that it signs: cert-manager does not shorten a
// leaf to its CA's life, so caRenewBefore must be more than leafDuration.
const (
	caDuration      = 10 * 365 * 24 * time.Hour
	caRenewBefore   = 365 * 24 * time.Hour
	leafDuration    = 90 * 24 * time.Hour
	leafRenewBefore = 30 * 24 * time.Hour
)

func selfSignedIssuer(s *snapshot.Cluster) *cmv1ac.IssuerApplyConfiguration {
	return cmv1ac.Issuer(names(s).IssuerSelfSigned(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithSpec(cmv1ac.IssuerSpec().WithSelfSigned(cmv1ac.SelfSignedIssuer()))
}

func caIssuer(s *snapshot.Cluster) *cmv1ac.IssuerApplyConfiguration {
	return cmv1ac.Issuer(names(s).IssuerCA(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithSpec(cmv1ac.IssuerSpec().WithCA(cmv1ac.CAIssuer().WithSecretName(names(s).CertificateCA())))
}

func caCertificate(s *snapshot.Cluster) *cmv1ac.CertificateApplyConfiguration {
	name := names(s).CertificateCA()
	return certificate(s, name).WithSpec(
		certificateSpec(s, name, names(s).IssuerSelfSigned(), caDuration, caRenewBefore).
			WithCommonName(name).
			WithIsCA(true).
			WithUsages(cmv1.UsageCertSign, cmv1.UsageCRLSign, cmv1.UsageDigitalSignature))
}

// serverCertificate names every way to reach an instance or a Service, so that clients can verify in full.
func serverCertificate(s *snapshot.Cluster) *cmv1ac.CertificateApplyConfiguration {
	n, name := names(s), names(s).CertificateServer()
	return certificate(s, name).WithSpec(
		certificateSpec(s, name, n.IssuerCA(), leafDuration, leafRenewBefore).
			WithDNSNames(serverNames(n, s.Object.Namespace)...).
			WithUsages(cmv1.UsageDigitalSignature, cmv1.UsageServerAuth))
}

func replicationCertificate(s *snapshot.Cluster) *cmv1ac.CertificateApplyConfiguration {
	name := names(s).CertificateReplica()
	return certificate(s, name).WithSpec(
		certificateSpec(s, name, names(s).IssuerCA(), leafDuration, leafRenewBefore).
			WithCommonName(naming.UserReplication).
			WithUsages(cmv1.UsageDigitalSignature, cmv1.UsageClientAuth))
}

func certificate(s *snapshot.Cluster, name string) *cmv1ac.CertificateApplyConfiguration {
	return cmv1ac.Certificate(name, s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s))
}

func certificateSpec(
	s *snapshot.Cluster, secret, issuer string, duration, renewBefore time.Duration,
) *cmv1ac.CertificateSpecApplyConfiguration {
	return cmv1ac.CertificateSpec().
		WithSecretName(secret).
		WithSecretTemplate(cmv1ac.CertificateSecretTemplate().WithLabels(labels(s))).
		WithDuration(metav1.Duration{Duration: duration}).
		WithRenewBefore(metav1.Duration{Duration: renewBefore}).
		WithRevisionHistoryLimit(1).
		WithPrivateKey(cmv1ac.CertificatePrivateKey().
			WithAlgorithm(cmv1.ECDSAKeyAlgorithm).WithSize(256).WithRotationPolicy(cmv1.RotationPolicyAlways)).
		WithIssuerRef(issuerRef(issuer))
}

func issuerRef(name string) *cmmetav1ac.IssuerReferenceApplyConfiguration {
	return cmmetav1ac.IssuerReference().WithGroup("cert-manager.io").WithKind(cmv1.IssuerKind).WithName(name)
}

func serverNames(n naming.Cluster, namespace string) []string {
	all := "*." + n.ServiceHeadless() + "." + namespace + ".svc"
	hosts := []string{all, all + ".cluster.local"}
	for _, service := range []string{n.ServiceReadWrite(), n.ServiceReadOnly(), n.ServiceRead()} {
		host := naming.ServiceHost(service, namespace)
		hosts = append(hosts, service, service+"."+namespace, host, host+".cluster.local")
	}
	return hosts
}
