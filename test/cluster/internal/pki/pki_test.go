package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func TestCertificatesVerifyAndSurviveASecondRun(t *testing.T) {
	dir := t.TempDir()
	run := func() (cert, kubeconfig []byte) {
		authority, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := authority.Server("apiserver", "127.0.0.1", "kubernetes.default.svc"); err != nil {
			t.Fatal(err)
		}
		if err := authority.Client("admin", "admin", "system:masters"); err != nil {
			t.Fatal(err)
		}
		if err := authority.SigningKey("sa"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "admin.kubeconfig")
		if err := authority.Kubeconfig(file, "admin", "https://127.0.0.1:1"); err != nil {
			t.Fatal(err)
		}
		return read(t, authority.Cert("apiserver")), read(t, file)
	}
	cert, config := run()
	again, configAgain := run()
	if !bytes.Equal(cert, again) || !bytes.Equal(config, configAgain) {
		t.Error("the second run replaced what was there")
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, filepath.Join(dir, "ca.crt")))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "kubernetes.default.svc"} {
		if _, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("ca.key: mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestForeignCertificatesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	authority, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Authority{other, authority} {
		if err = a.Client("admin", "admin"); err != nil {
			t.Fatal(err)
		}
	}
	if err = os.WriteFile(authority.Cert("admin"), read(t, other.Cert("admin")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err = authority.Client("admin", "admin"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(authority.Cert("admin"), authority.Key("admin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.CheckSignatureFrom(authority.cert); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
