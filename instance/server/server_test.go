package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
)

// authority signs certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	certificate, key := sign(t, "authority", nil)
	return authority{certificate: certificate.Leaf, key: key}
}

func (a authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	certificate, _ := sign(t, name, &a)
	return certificate
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// sign makes a certificate, signed by itself if there is no authority.
func sign(t *testing.T, name string, by *authority) (tls.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, key
}

// start runs a server until the test ends, and returns where it listens.
func start(t *testing.T, serve func(ctx context.Context, l net.Listener) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return listener.Addr().String()
}

type answers struct{ started, live, ready atomic.Bool }

func (a *answers) Started() bool { return a.started.Load() }
func (a *answers) Live() bool    { return a.live.Load() }
func (a *answers) Ready() bool   { return a.ready.Load() }

func TestProbes(t *testing.T) {
	a := &answers{}
	address := start(t, func(ctx context.Context, l net.Listener) error { return ServeProbes(ctx, l, a) })
	for path, answer := range map[string]*atomic.Bool{
		contract.PathStartup: &a.started, contract.PathLive: &a.live, contract.PathReady: &a.ready,
	} {
		for yes, want := range map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusOK} {
			answer.Store(yes)
			response, err := http.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != want || response.ContentLength != 0 {
				t.Errorf("%s: %d with %d bytes, want %d with none", path, response.StatusCode, response.ContentLength, want)
			}
		}
		answer.Store(false)
	}
	response, err := http.Get("http://" + address + contract.PathStatus)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("the plain port answers for the status: %d, %v", response.StatusCode, err)
	}
}

// ask asks for the status with a client certificate, or none.
func ask(address string, trust authority, client ...tls.Certificate) (int, contract.Status, error) {
	config := &tls.Config{RootCAs: trust.pool(), Certificates: client, MinVersion: tls.VersionTLS13}
	c := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := c.Get("https://" + address + contract.PathStatus)
	if err != nil {
		return 0, contract.Status{}, err
	}
	var status contract.Status
	if response.StatusCode == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(&status)
	}
	return response.StatusCode, status, errors.Join(err, response.Body.Close())
}

func TestStatus(t *testing.T) {
	ours, foreign, renewed := newAuthority(t), newAuthority(t), newAuthority(t)
	var current atomic.Pointer[authority]
	current.Store(&ours)
	identities := map[*x509.Certificate]tls.Certificate{
		ours.certificate: ours.issue(t, "server"), renewed.certificate: renewed.issue(t, "server"),
	}
	identity := func() (tls.Certificate, *x509.CertPool, error) {
		a := current.Load()
		return identities[a.certificate], a.pool(), nil
	}
	status := func() contract.Status { return contract.Status{Instance: "orders-db-0", Written: "0/1"} }
	address := start(t, func(ctx context.Context, l net.Listener) error { return ServeStatus(ctx, l, identity, status) })

	if code, got, err := ask(address, ours, ours.issue(t, naming.UserReplication)); err != nil || code != http.StatusOK ||
		got.Instance != "orders-db-0" || got.Written != "0/1" {
		t.Errorf("a peer: %d %+v %v", code, got, err)
	}
	for _, name := range []string{"app", "", "pg-operator"} {
		if code, _, err := ask(address, ours, ours.issue(t, name)); err != nil || code != http.StatusForbidden {
			t.Errorf("certificate of %q: %d %v", name, code, err)
		}
	}
	if _, _, err := ask(address, ours); err == nil {
		t.Error("answers without a certificate")
	}
	if _, _, err := ask(address, ours, foreign.issue(t, naming.UserReplication)); err == nil {
		t.Error("answers a certificate of another authority")
	}
	current.Store(&renewed)
	if _, _, err := ask(address, renewed, ours.issue(t, naming.UserReplication)); err == nil {
		t.Error("answers a certificate of the authority before")
	}
	if code, _, err := ask(address, renewed, renewed.issue(t, naming.UserReplication)); err != nil || code != http.StatusOK {
		t.Errorf("after the renewal: %d %v", code, err)
	}
}
