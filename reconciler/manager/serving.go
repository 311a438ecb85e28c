package manager

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
	"github.com/acme/pg-operator/certs/authority"
)

// serving is the webhook server, nil without webhooks, and what has to run for it.
type serving struct {
	server    *certs.Server
	runnables []manager.Runnable
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=pg-operator,verbs=get;list;watch

// serving makes the server, with its certificate from where --webhook-certs says. The metric of trust watches the
// webhook configurations.
func (o *options) serving(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) (serving, error) {
	if !o.webhooks {
		return serving{}, nil
	}
	var watched map[client.Object]cache.ByObject
	if o.webhookCerts == certsSelf {
		watched = authority.Watched(o.namespace)
	}
	objects, err := certs.NewCache(ctx, config, scheme, watched)
	if err != nil {
		return serving{}, err
	}
	source, runnables, err := o.source(ctx, config, objects)
	if err != nil {
		return serving{}, err
	}
	if err = metrics.Registry.Register(certs.NewTrust(source, objects)); err != nil {
		return serving{}, fmt.Errorf("register the metric of the certificate's trust: %w", err)
	}
	server, err := certs.NewServer(certs.Options{
		Port: o.webhookPort, Source: source, ServerName: naming.ServiceHost(o.webhookService, o.namespace),
		Registerer: metrics.Registry,
	})
	return serving{server: server, runnables: append(runnables, objects)}, err
}

func (o *options) source(
	ctx context.Context, config *rest.Config, objects *certs.Cache,
) (certs.Source, []manager.Runnable, error) {
	if o.webhookCerts == certsFiles {
		files, err := certs.NewFiles(o.certDir)
		return files, nil, err
	}
	signer, keeper, err := authority.New(ctx, config, objects, ctrl.Log.WithName("certificates"), o.authority())
	return signer, []manager.Runnable{keeper}, err
}

func (o *options) authority() authority.Options {
	return authority.Options{
		Namespace: o.namespace, DNSNames: authority.DNSNames(o.webhookService, o.namespace),
		CALifetime: o.caLifetime, LeafLifetime: o.certLifetime,
	}
}
