package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Check says why a client that calls host at the instant now would refuse the leaf, or nil. It does not verify the
// chain: which CA the client trusts is not known here.
func Check(leaf *x509.Certificate, now time.Time, host string) error {
	switch {
	case leaf == nil:
		return errors.New("no certificate is served yet")
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("certificate %s is not valid before %s and it is %s: compare the clocks of the nodes",
			serial(leaf), utc(leaf.NotBefore), utc(now))
	case !now.Before(leaf.NotAfter):
		return fmt.Errorf("certificate %s expired at %s and it is %s: see why it was not renewed",
			serial(leaf), utc(leaf.NotAfter), utc(now))
	}
	if err := leaf.VerifyHostname(host); err != nil {
		return fmt.Errorf("certificate %s does not name %s, but %q: name it there, or correct --webhook-service-name",
			serial(leaf), host, leaf.DNSNames)
	}
	return nil
}

func serial(leaf *x509.Certificate) string { return fmt.Sprintf("%x", leaf.SerialNumber) }

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// HardenTLS sets what every server of the operator has in common: TLS 1.2 at least and HTTP/1.1 only, because HTTP/2
// lets one client open streams without bound (CVE-2023-44487) and the API server calls Services with HTTP/1.1 anyway.
func HardenTLS(config *tls.Config) {
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = []string{"http/1.1"}
}
