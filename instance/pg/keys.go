package pg

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Keys are a certificate, its private key and its authority, as private copies of a mounted Secret: PostgreSQL and
// libpq refuse a key that its group may read, and the kubelet mounts Secrets just so.
type Keys struct {
	// Source is the mount, Dir where the copies are.
	Source, Dir string
}

const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	authorityFile   = "ca.crt"
)

// Certificate is the path of the certificate's copy.
func (k Keys) Certificate() string { return filepath.Join(k.Dir, certificateFile) }

// Key is the path of the private key's copy.
func (k Keys) Key() string { return filepath.Join(k.Dir, keyFile) }

// Authority is the path of the copy of the authority's certificate.
func (k Keys) Authority() string { return filepath.Join(k.Dir, authorityFile) }

// Refresh copies what changed in the Secret. Half a renewal is never copied: key and certificate must fit.
func (k Keys) Refresh() (changed bool, err error) {
	names := []string{certificateFile, keyFile, authorityFile}
	contents := map[string][]byte{}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(k.Source, name))
		if err != nil {
			return false, fmt.Errorf("cannot read the certificate's Secret: %w", err)
		}
		contents[name] = content
	}
	if _, err := tls.X509KeyPair(contents[certificateFile], contents[keyFile]); err != nil {
		return false, fmt.Errorf("the Secret mounted at %s: %w", k.Source, err)
	}
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return false, err
	}
	for _, name := range names {
		path := filepath.Join(k.Dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, contents[name]) {
			continue
		}
		if err := WriteFile(path, contents[name]); err != nil {
			return false, err
		}
		changed = true
	}
	return changed, nil
}

// Load reads the copies.
func (k Keys) Load() (tls.Certificate, *x509.CertPool, error) {
	certificate, err := tls.LoadX509KeyPair(k.Certificate(), k.Key())
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	authority, err := os.ReadFile(k.Authority())
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return tls.Certificate{}, nil, errors.New(k.Authority() + " has no certificate")
	}
	return certificate, pool, nil
}

// Loaded are Keys in memory, which are read again when their copies change.
type Loaded struct {
	Keys Keys

	mu          sync.Mutex
	known       bool
	files       [3]fileState
	certificate tls.Certificate
	authority   *x509.CertPool
}

// fileState tells one version of a file from the next.
type fileState struct {
	at   time.Time
	size int64
}

// Load returns the same values until the copies change. While they are being replaced, and so do not fit, the ones
// before are good.
func (l *Loaded) Load() (tls.Certificate, *x509.CertPool, error) {
	var files [3]fileState
	for i, path := range []string{l.Keys.Certificate(), l.Keys.Key(), l.Keys.Authority()} {
		if info, err := os.Stat(path); err == nil {
			files[i] = fileState{at: info.ModTime(), size: info.Size()}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known && files == l.files {
		return l.certificate, l.authority, nil
	}
	certificate, authority, err := l.Keys.Load()
	if err == nil {
		l.known, l.files, l.certificate, l.authority = true, files, certificate, authority
	}
	if l.known {
		err = nil
	}
	return l.certificate, l.authority, err
}

// Serial is the serial number of the certificate, in hexadecimal.
func (k Keys) Serial() (string, error) {
	certificate, _, err := k.Load()
	if err != nil {
		return "", err
	}
	return certificate.Leaf.SerialNumber.Text(16), nil
}

// Fingerprint identifies the contents of files; one that is missing counts as empty.
func Fingerprint(paths ...string) string {
	sum := sha256.New()
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			content = nil
		}
		fmt.Fprintf(sum, "%d:", len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
