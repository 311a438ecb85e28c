package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// backdate is how far certificates reach into the past, for API servers whose clocks are behind the operator's.
const backdate = 10 * time.Minute

// ca is a certificate authority: a certificate with its key.
type ca struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newCA(now time.Time, lifetime time.Duration) (*ca, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a CA: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "pg-operator webhook CA"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign a CA: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &ca{certificate: certificate, key: key}, nil
}

// issue makes a serving certificate, whose key is nowhere but in the memory of this process. It never outlives the CA.
func (c *ca) issue(now time.Time, lifetime time.Duration, names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a certificate: %w", err)
	}
	end := now.Add(lifetime)
	if end.After(c.certificate.NotAfter) {
		end = c.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "pg-operator"}, DNSNames: names,
		NotBefore: now.Add(-backdate), NotAfter: end, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, key.Public(), c.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// encode returns the certificate and the key as PEM text.
func (c *ca) encode() (certificate, key []byte, err error) {
	if key, err = keyutil.MarshalPrivateKeyToPEM(c.key); err != nil {
		return nil, nil, fmt.Errorf("encode the key of a CA: %w", err)
	}
	if certificate, err = certutil.EncodeCertificates(c.certificate); err != nil {
		return nil, nil, fmt.Errorf("encode a CA: %w", err)
	}
	return certificate, key, nil
}

// decodeCA returns an error for whatever cannot sign at the instant now.
func decodeCA(certificate, key []byte, now time.Time) (*ca, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok || !pair.Leaf.IsCA:
		return nil, errors.New("the certificate is not one of a CA")
	case now.Before(pair.Leaf.NotBefore) || !now.Before(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("the CA is valid from %s to %s", pair.Leaf.NotBefore.UTC(), pair.Leaf.NotAfter.UTC())
	}
	return &ca{certificate: pair.Leaf, key: signer}, nil
}
