// Package pki makes the cluster's keys, certificates and kubeconfigs. They live
// as long as the cluster; a second run keeps what is there.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/files"
)

// lifetime of all certificates: longer than any test cluster lives.
const lifetime = 365 * 24 * time.Hour

// Authority signs certificates into a directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Open loads the authority of a directory, or makes it.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	authority := &Authority{dir: dir}
	if err := authority.load(); err == nil {
		return authority, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "pg-operator test cluster"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if err := authority.sign("ca", template, nil); err != nil {
		return nil, err
	}
	return authority, authority.load()
}

func (a *Authority) load() error {
	certificate, err := os.ReadFile(a.CA())
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.Key("ca"))
	if err != nil {
		return err
	}
	certBlock, _ := pem.Decode(certificate)
	keyBlock, _ := pem.Decode(key)
	if certBlock == nil || keyBlock == nil {
		return errors.New("not in PEM form")
	}
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return err
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return errors.New("the key cannot sign")
	}
	a.key, a.pem = signer, certificate
	return nil
}

// CA is the path of the authority's certificate.
func (a *Authority) CA() string { return a.Cert("ca") }

// Cert is the path of a certificate.
func (a *Authority) Cert(name string) string { return filepath.Join(a.dir, name+".crt") }

// Key is the path of a key.
func (a *Authority) Key(name string) string { return filepath.Join(a.dir, name+".key") }

// Client makes a client certificate for a Kubernetes user in groups.
func (a *Authority) Client(name, user string, groups ...string) error {
	return a.ensure(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server makes a serving certificate for DNS names and addresses.
func (a *Authority) Server(name string, hosts ...string) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.ensure(name, template)
}

// SigningKey makes a key pair without a certificate, for service account
// tokens.
func (a *Authority) SigningKey(name string) error {
	if exists(a.Key(name)) && exists(a.PublicKey(name)) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(a.PublicKey(name), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(a.Key(name), key)
}

// PublicKey is the path of a public key made by SigningKey.
func (a *Authority) PublicKey(name string) string { return filepath.Join(a.dir, name+".pub") }

// ensure signs unless a pair signed by this authority is there.
func (a *Authority) ensure(name string, template *x509.Certificate) error {
	if exists(a.Key(name)) {
		if data, err := os.ReadFile(a.Cert(name)); err == nil {
			if block, _ := pem.Decode(data); block != nil {
				cert, err := x509.ParseCertificate(block.Bytes)
				if err == nil && cert.CheckSignatureFrom(a.cert) == nil && time.Until(cert.NotAfter) > 24*time.Hour {
					return nil
				}
			}
		}
	}
	if err := a.sign(name, template, a.cert); err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return nil
}

// sign writes the key last, so that a pair whose key exists is complete.
func (a *Authority) sign(name string, template, parent *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(lifetime)
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if err := os.Remove(a.Key(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writePEM(a.Cert(name), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(a.Key(name), key)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return files.Write(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

var kubeconfig = template.Must(template.New("kubeconfig").Parse(`apiVersion: v1
kind: Config
current-context: pg-operator
clusters:
- name: pg-operator
  cluster:
    server: {{.Server}}
    certificate-authority-data: {{.CA}}
contexts:
- name: pg-operator
  context:
    cluster: pg-operator
    user: {{.User}}
users:
- name: {{.User}}
  user:
    client-certificate-data: {{.Cert}}
    client-key-data: {{.Key}}
`))

// Kubeconfig writes a kubeconfig with everything inline for a certificate made
// by Client.
func (a *Authority) Kubeconfig(file, name, server string) error {
	cert, err := os.ReadFile(a.Cert(name))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.Key(name))
	if err != nil {
		return err
	}
	encode := base64.StdEncoding.EncodeToString
	return files.Render(file, kubeconfig, map[string]string{
		"Server": server, "User": name, "CA": encode(a.pem), "Cert": encode(cert), "Key": encode(key),
	}, 0o600)
}
