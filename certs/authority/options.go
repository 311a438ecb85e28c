package authority

import (
	"errors"
	"fmt"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
)

// MinLeafLifetime is the shortest life of a certificate: times in certificates are whole seconds, and what hangs on a
// sixth of this life needs some.
const MinLeafLifetime = 6 * time.Second

// Options of the authority.
type Options struct {
	// Namespace of the operator.
	Namespace string
	// DNSNames that the certificates are for.
	DNSNames []string
	// CALifetime is how long a CA is valid. Its successor is made when a third of it is left.
	CALifetime time.Duration
	// LeafLifetime is how long a serving certificate is valid. Its successor is made when a third of it is left.
	LeafLifetime time.Duration
}

// DNSNames are all names of the operator's Services.
func DNSNames(webhook, namespace string) []string {
	var names []string
	for _, service := range []string{webhook, certs.ServiceMetrics} {
		host := naming.ServiceHost(service, namespace)
		names = append(names, host, host+".cluster.local")
	}
	return names
}

// Validate tells why lifetimes cannot be used.
func (o Options) Validate() error {
	var errs []error
	if o.LeafLifetime < MinLeafLifetime {
		errs = append(errs, fmt.Errorf("--webhook-cert-lifetime=%s: use %s or more; an hour is short already", o.LeafLifetime, MinLeafLifetime))
	}
	// A CA is replaced when a third of its life is left, which must hold a whole certificate and the time to settle.
	if o.CALifetime < 4*o.LeafLifetime {
		errs = append(errs, fmt.Errorf("--webhook-ca-lifetime=%s: use four times --webhook-cert-lifetime=%s or more, "+
			"so that no certificate outlives its CA", o.CALifetime, o.LeafLifetime))
	}
	return errors.Join(errs...)
}

// settle is how long a bundle has to be in place before it counts as known to every API server. Each watches the
// configurations and hears of a change within milliseconds; a minute is for one that lags.
func (o Options) settle() time.Duration { return min(time.Minute, o.LeafLifetime/6) }

// interval is how often everything is looked at without a reason. It is the wall clock that is compared then, because
// timers stand still while a virtual machine is suspended.
func (o Options) interval() time.Duration { return min(time.Minute, o.LeafLifetime/12) }

// retry is how soon what failed is tried again.
func (o Options) retry() time.Duration { return min(2*time.Second, o.interval()) }
