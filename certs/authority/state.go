// Package authority is the operator's own certificate authority, for Kubernetes
// clusters where no cert-manager issues the certificate of its webhooks and its
// metrics.
//
// One Secret holds all there is to know. The leader (Keeper) writes it; every
// replica (Signer) signs, with the CA in it, a certificate of its own that it
// holds in memory. No request fails while a CA takes over from another,
// because a CA comes in three steps:
//
//  1. The new CA is stored beside the one that signs, and the API server is
//     told to trust both.
//  2. When it does, and other API servers have had time to hear of it, the new
//     CA signs.
//  3. When the last certificate of the old CA has ended, the old CA is no longer
//     trusted.
//
// cert-manager's own pkg/server/tls/authority was not used: it replaces its CA
// in one step, which is safe only where cainjector keeps the old one in the
// bundle.
package authority

import (
	"bytes"
	"crypto/x509"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/acme/pg-operator/certs"
)

// Keys of the Secret, besides those of certs.FileCertificate and certs.FileKey for the CA that signs, and certs.FileCA
// for all CAs that clients must trust.
const (
	keyNextCertificate = "next.crt"
	keyNextKey         = "next.key"
	keySince           = "signing-since" // RFC 3339
)

// state is what the Secret says.
type state struct {
	current *ca // signs; nil: none can
	next    *ca // will sign when it is trusted; nil: none
	trusted []*x509.Certificate
	since   time.Time // when current began to sign
}

// decode takes what can be used at the instant now; parts that cannot are absent.
func decode(data map[string][]byte, now time.Time) state {
	var s state
	if current, err := decodeCA(data[certs.FileCertificate], data[certs.FileKey], now); err == nil {
		s.current = current
	}
	if next, err := decodeCA(data[keyNextCertificate], data[keyNextKey], now); err == nil {
		s.next = next
	}
	s.since, _ = time.Parse(time.RFC3339, string(data[keySince]))
	s.trust(now, certs.ParseBundle(data[certs.FileCA])...)
	for _, c := range []*ca{s.current, s.next} {
		if c != nil {
			s.trust(now, c.certificate)
		}
	}
	return s
}

func (s state) encode() (map[string][]byte, error) {
	data := map[string][]byte{}
	put := func(c *ca, certificate, key string) (err error) {
		if c != nil {
			data[certificate], data[key], err = c.encode()
		}
		return err
	}
	if err := put(s.current, certs.FileCertificate, certs.FileKey); err != nil {
		return nil, err
	}
	if err := put(s.next, keyNextCertificate, keyNextKey); err != nil {
		return nil, err
	}
	if s.current != nil {
		data[keySince] = []byte(s.since.UTC().Format(time.RFC3339))
	}
	var err error
	data[certs.FileCA], err = s.bundle()
	return data, err
}

// bundle is the value of caBundle.
func (s state) bundle() ([]byte, error) { return certutil.EncodeCertificates(s.trusted...) }

// trust adds certificates that are not there yet, unless they have ended.
func (s *state) trust(now time.Time, added ...*x509.Certificate) {
	for _, certificate := range added {
		if now.Before(certificate.NotAfter) && !contains(s.trusted, certificate) {
			s.trusted = append(s.trusted, certificate)
		}
	}
}

func contains(all []*x509.Certificate, one *x509.Certificate) bool {
	return slices.ContainsFunc(all, one.Equal)
}

// facts are what advance decides by, besides the state.
type facts struct {
	now time.Time
	// trustedFor is how long the API server has trusted all of state.trusted.
	trustedFor time.Duration
	// found are the CAs in the API server's bundles, whoever put them there.
	found []*x509.Certificate
}

// advance returns the state after the next step, and what the step is; an empty text when nothing is to be done. The API
// server trusts all of s.trusted.
func (s state) advance(o Options, f facts) (state, string, error) {
	s.trusted = slices.Clone(s.trusted)
	switch {
	case s.next == nil && s.current == nil:
		// Whatever is trusted stays so: replicas may still serve certificates of a CA that was deleted, or cert-manager's.
		s.trust(f.now, f.found...)
		return s.grow(o, f, "Made a CA")
	case s.next == nil && f.now.After(s.current.certificate.NotAfter.Add(-o.CALifetime/3)):
		return s.grow(o, f, "Made the CA that replaces the present one")
	case s.next != nil && (f.trustedFor >= o.settle() || len(s.trusted) == 1):
		s.current, s.next, s.since = s.next, nil, f.now
		return s, "Signing with the new CA", nil
	case s.current != nil && s.since.IsZero():
		s.since = f.now
		return s, "Took note of the time", nil
	case s.next == nil && len(s.trusted) > 1 && f.now.After(s.since.Add(o.LeafLifetime)):
		s.trusted = []*x509.Certificate{s.current.certificate}
		return s, "Dropped the CAs whose certificates have ended", nil
	}
	return s, "", nil
}

func (s state) grow(o Options, f facts, what string) (state, string, error) {
	next, err := newCA(f.now, o.CALifetime)
	if err != nil {
		return s, "", err
	}
	s.next = next
	s.trust(f.now, next.certificate)
	return s, what, nil
}

// spread tells whether a caBundle is what it should be.
func (s state) spread(bundle []byte) bool {
	want, err := s.bundle()
	return err == nil && bytes.Equal(want, bundle)
}
