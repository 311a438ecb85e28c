package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/acme/pg-operator/apis/naming"
)

// Identity is the certificate that an agent shows, and the authority that the certificates of its peers must come from.
// The same values are returned until they change.
type Identity func() (tls.Certificate, *x509.CertPool, error)

// tlsConfig asks for the identity at each connection, so that a renewed certificate is used at once. Clients are asked
// for any certificate: it is judged by admission, which can tell them what is wrong with it.
func tlsConfig(identity Identity) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, _, err := identity()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{certificate},
				ClientAuth:   tls.RequestClientCert,
				// A resumed session would bring its certificate from another time.
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// admission is what was found out about the client of one connection, whose requests come one after the other.
type admission struct {
	// authority that the certificate was judged by, expiry when the first certificate of its chain expires.
	authority *x509.CertPool
	expiry    time.Time
}

type admissionKey struct{}

// withAdmission gives a connection its admission.
func withAdmission(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, admissionKey{}, &admission{})
}

// onlyPeers lets the agents of the cluster in, by the certificate that they proved in the handshake to have the key of.
// Each request is judged by the authority of its time. All instances share one certificate, so which of them asks is
// known from nothing but its word.
func onlyPeers(identity Identity, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, why := admit(r, identity, time.Now())
		if code != http.StatusOK {
			w.Header().Set("Connection", "close")
			http.Error(w, why, code)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit tells whether a request comes from a peer, and if not, what to answer.
func admit(r *http.Request, identity Identity, now time.Time) (code int, why string) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return http.StatusUnauthorized, "only instances of this cluster are answered; show the cluster's replication certificate"
	}
	_, authority, err := identity()
	if err != nil {
		return http.StatusServiceUnavailable, "the certificate of the cluster's authority cannot be read"
	}
	known, ok := r.Context().Value(admissionKey{}).(*admission)
	if ok && known.authority == authority && now.Before(known.expiry) {
		return http.StatusOK, ""
	}
	expiry, err := verify(r.TLS.PeerCertificates, authority, now)
	if err != nil {
		return http.StatusForbidden, err.Error()
	}
	if ok {
		known.authority, known.expiry = authority, expiry
	}
	return http.StatusOK, ""
}

// verify judges a client's certificate and its chain, and returns how long the judgement holds.
func verify(chain []*x509.Certificate, authority *x509.CertPool, now time.Time) (expiry time.Time, err error) {
	leaf, others := chain[0], x509.NewCertPool()
	for _, other := range chain[1:] {
		others.AddCert(other)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: authority, Intermediates: others, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return time.Time{}, errors.New("this certificate, or its authority's, has expired or is not valid yet")
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage,
		err == nil && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return time.Time{}, errors.New("this certificate is not one for clients")
	case errors.As(err, &unknown):
		return time.Time{}, errors.New("this certificate comes from another authority than this cluster's; " +
			"instances of other clusters have no say here")
	case err != nil:
		return time.Time{}, errors.New("this certificate is not valid for this cluster")
	case leaf.Subject.CommonName != naming.UserReplication:
		return time.Time{}, errors.New("this certificate does not belong to an instance of the cluster")
	}
	expiry = leaf.NotAfter
	for _, certificate := range chains[0] {
		if certificate.NotAfter.Before(expiry) {
			expiry = certificate.NotAfter
		}
	}
	return expiry, nil
}
