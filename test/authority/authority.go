// Package authority issues certificates for tests.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t           testing.TB
	certificate tls.Certificate
}

// New makes an authority for a test.
func New(t testing.TB) *Authority {
	t.Helper()
	return &Authority{t: t, certificate: sign(t, "authority", nil, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	})}
}

// Issue issues a certificate of a common name, for servers at 127.0.0.1 and for clients, unless that is changed.
func (a *Authority) Issue(name string, change ...func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	return sign(a.t, name, &a.certificate, change...)
}

// Pool has the authority's certificate.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate.Leaf)
	return pool
}

// Mount writes a certificate into a directory as the kubelet mounts a Secret: tls.crt, tls.key and ca.crt, which the group
// may read.
func (a *Authority) Mount(dir, name string, change ...func(*x509.Certificate)) *x509.Certificate {
	a.t.Helper()
	pair := a.Issue(name, change...)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"tls.key": {Type: "PRIVATE KEY", Bytes: key},
		"ca.crt":  {Type: "CERTIFICATE", Bytes: a.certificate.Certificate[0]},
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o640)
		}
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return pair.Leaf
}

// SelfSigned is a certificate of nobody's.
func SelfSigned(t testing.TB, name string) tls.Certificate {
	t.Helper()
	return sign(t, name, nil)
}

// sign makes a certificate, signed by itself if there is no authority.
func sign(t testing.TB, name string, by *tls.Certificate, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, change := range change {
		change(template)
	}
	if by == nil {
		by = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
