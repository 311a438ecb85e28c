package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	certwatchermetrics "sigs.k8s.io/controller-runtime/pkg/certwatcher/metrics"
)

const host = "pg-operator-webhook.pg-operator-system.svc"

// pair is a certificate and its key as cert-manager writes them.
type pair struct {
	leaf             *x509.Certificate
	certificate, key []byte
}

func issue(t *testing.T, serial int64, name string, notBefore, notAfter time.Time) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: notBefore, NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		leaf:        leaf,
		certificate: encode(leaf),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
}

func encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func valid(t *testing.T, serial int64) pair {
	t.Helper()
	now := time.Now()
	return issue(t, serial, host, now.Add(-time.Hour), now.Add(time.Hour))
}

func TestCheck(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	good := issue(t, 0xabc, host, now.Add(-time.Hour), now.Add(time.Hour)).leaf
	tests := map[string]struct {
		leaf *x509.Certificate
		at   time.Time
		host string
		want string
	}{
		"good":                  {leaf: good, at: now, host: host},
		"first instant":         {leaf: good, at: good.NotBefore, host: host},
		"last second":           {leaf: good, at: good.NotAfter.Add(-time.Second), host: host},
		"nothing served":        {at: now, host: host, want: "no certificate is served yet"},
		"not yet valid":         {leaf: good, at: now.Add(-2 * time.Hour), host: host, want: "certificate abc is not valid before 2026-08-01T11:00:00Z"},
		"expired":               {leaf: good, at: good.NotAfter, host: host, want: "certificate abc expired at 2026-08-01T13:00:00Z"},
		"another Service":       {leaf: good, at: now, host: "other.pg-operator-system.svc", want: "does not name other.pg-operator-system.svc"},
		"another namespace":     {leaf: good, at: now, host: "pg-operator-webhook.default.svc", want: `but ["` + host + `"]`},
		"common name only":      {leaf: withoutNames(t, now), at: now, host: host, want: "does not name"},
		"expired and misnamed":  {leaf: good, at: good.NotAfter, host: "other", want: "expired"},
		"short name of service": {leaf: good, at: now, host: "pg-operator-webhook", want: "does not name"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := Check(tc.leaf, tc.at, tc.host)
			if tc.want == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func withoutNames(t *testing.T, now time.Time) *x509.Certificate {
	t.Helper()
	leaf := issue(t, 1, host, now.Add(-time.Hour), now.Add(time.Hour)).leaf
	leaf.DNSNames = nil
	return leaf
}

// volume lays a pair out as the kubelet does: files are links through ..data, which is swapped in one step.
type volume struct {
	t   *testing.T
	dir string
	n   int
}

func newVolume(t *testing.T, p pair) *volume {
	v := &volume{t: t, dir: t.TempDir()}
	v.put(p.certificate, p.key)
	for _, file := range []string{FileCertificate, FileKey} {
		v.must(os.Symlink(filepath.Join("..data", file), filepath.Join(v.dir, file)))
	}
	return v
}

func (v *volume) put(certificate, key []byte) {
	v.n++
	version := "..v" + strconv.Itoa(v.n)
	v.must(os.Mkdir(filepath.Join(v.dir, version), 0o700))
	v.must(os.WriteFile(filepath.Join(v.dir, version, FileCertificate), certificate, 0o600))
	v.must(os.WriteFile(filepath.Join(v.dir, version, FileKey), key, 0o600))
	v.must(os.Symlink(version, filepath.Join(v.dir, "..next")))
	v.must(os.Rename(filepath.Join(v.dir, "..next"), filepath.Join(v.dir, "..data")))
	if v.n > 1 {
		v.must(os.RemoveAll(filepath.Join(v.dir, "..v"+strconv.Itoa(v.n-1))))
	}
}

func (v *volume) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

type running struct {
	*Server
	address string
}

func start(t *testing.T, v *volume) running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	if err = listener.Close(); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	files, err := NewFiles(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	files.WithWatchInterval(200 * time.Millisecond)
	server, err := NewServer(Options{
		Host: "127.0.0.1", Port: address.Port, Source: files, ServerName: host, Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Register("/", http.NotFoundHandler())
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return running{Server: server, address: address.String()}
}

// served is the serial number that a new connection is shown, or -1 when there is no answer.
func (r running) served() int64 {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.Dial("tcp", r.address)
	if err != nil {
		return -1
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func (r running) ready() error { return r.ReadyChecker()(nil) }

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

func TestRotationWithoutRestart(t *testing.T) {
	v := newVolume(t, valid(t, 1))
	server := start(t, v)
	eventually(t, "the first certificate is served and ready", func() bool { return server.served() == 1 && server.ready() == nil })

	for serial := int64(2); serial < 5; serial++ {
		next := valid(t, serial)
		v.put(next.certificate, next.key)
		eventually(t, "a rotated certificate is served", func() bool { return server.served() == serial })
		if err := server.ready(); err != nil {
			t.Fatalf("not ready after a rotation: %v", err)
		}
		for collector, want := range map[prometheus.Collector]time.Time{
			server.notBefore(): next.leaf.NotBefore, server.notAfter(): next.leaf.NotAfter,
		} {
			if got := testutil.ToFloat64(collector); got != float64(want.Unix()) {
				t.Fatalf("a metric says %v, want %v", got, want.Unix())
			}
		}
	}
}

func TestHalfWrittenPairKeepsTheOldOne(t *testing.T) {
	v := newVolume(t, valid(t, 1))
	server := start(t, v)
	eventually(t, "the first certificate is served", func() bool { return server.served() == 1 })

	next, other := valid(t, 2), valid(t, 3)
	for name, half := range map[string]pair{
		"key of another certificate": {certificate: next.certificate, key: other.key},
		"empty certificate":          {key: next.key},
		"cut key":                    {certificate: next.certificate, key: next.key[:40]},
	} {
		before := testutil.ToFloat64(certwatchermetrics.ReadCertificateErrors)
		v.put(half.certificate, half.key)
		eventually(t, name+" is counted as an error", func() bool {
			return testutil.ToFloat64(certwatchermetrics.ReadCertificateErrors) > before
		})
		if got := server.served(); got != 1 {
			t.Fatalf("%s: certificate %d is served, want the old one", name, got)
		}
		if err := server.ready(); err != nil {
			t.Fatalf("%s: not ready with the old certificate: %v", name, err)
		}
	}
	v.put(next.certificate, next.key)
	eventually(t, "the whole pair is served", func() bool { return server.served() == 2 })
}

func TestReadinessFollowsTheServedCertificate(t *testing.T) {
	now := time.Now()
	v := newVolume(t, issue(t, 1, host, now.Add(-2*time.Hour), now.Add(-time.Hour)))
	server := start(t, v)
	eventually(t, "the server answers", func() bool { return server.served() == 1 })
	steps := []struct {
		name string
		pair pair
		want string
	}{
		{"not yet valid", issue(t, 2, host, now.Add(time.Hour), now.Add(2*time.Hour)), "not valid before"},
		{"good", valid(t, 3), ""},
		{"wrong name", issue(t, 4, "other.svc", now.Add(-time.Hour), now.Add(time.Hour)), "does not name"},
		{"good again", valid(t, 5), ""},
	}
	if err := server.ready(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Fatalf("expired: readiness says %v", err)
	}
	for _, step := range steps {
		v.put(step.pair.certificate, step.pair.key)
		eventually(t, step.name+" is served", func() bool { return server.served() == step.pair.leaf.SerialNumber.Int64() })
		err := server.ready()
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Fatalf("%s: readiness says %v, want %q", step.name, err, step.want)
		}
	}
}

func TestDrainEndsConnections(t *testing.T) {
	v := newVolume(t, valid(t, 1))
	server := start(t, v)
	eventually(t, "the server answers", func() bool { return server.served() == 1 })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	closes := func() bool {
		response, err := client.Get("https://" + server.address + "/")
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return response.Close
	}
	if closes() {
		t.Fatal("a connection was closed before Drain")
	}
	server.Drain()
	if !closes() {
		t.Fatal("a connection is kept after Drain")
	}
}

func TestNotReadyBeforeListening(t *testing.T) {
	v := newVolume(t, valid(t, 1))
	files, err := NewFiles(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(Options{Host: "127.0.0.1", Port: 1, Source: files, ServerName: host, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.ReadyChecker()(nil); err == nil {
		t.Fatal("ready though nothing listens")
	}
}

func TestMissingFilesSayWhatToDo(t *testing.T) {
	_, err := NewFiles(t.TempDir())
	for _, part := range []string{SecretServing, "--webhooks=false", "--webhook-certs=self"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Fatalf("no %q in: %v", part, err)
		}
	}
}

func TestOldTLSAndHTTP2AreRefused(t *testing.T) {
	v := newVolume(t, valid(t, 1))
	server := start(t, v)
	eventually(t, "the server answers", func() bool { return server.served() == 1 })
	_, err := tls.Dial("tcp", server.address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	if err == nil {
		t.Fatal("TLS 1.1 was accepted")
	}
	conn, err := tls.Dial("tcp", server.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Fatalf("protocol %q was negotiated", got)
	}
}
