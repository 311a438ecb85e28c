package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/certs"
	"github.com/acme/pg-operator/reconciler"
	"github.com/acme/pg-operator/webhooks"
)

const (
	// leaderElectionID is the name of the Lease that operators compete for.
	leaderElectionID = "pg-operator"
	// leaseDuration is how long a silent leader keeps the Lease; it gives up by itself after renewDeadline. The 5 s
	// between them are for its last requests to land.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	// retryPeriod is the least time between two tries, the most is 2.2 times it: a released Lease is taken in 3 s.
	retryPeriod = time.Second

	// shutdownTimeout is what running passes and admissions get to end. It must fit in the pod's grace period
	// together with --shutdown-delay.
	shutdownTimeout = 30 * time.Second
	// passTimeout ends a pass that hangs. The longest wait inside one is a request of at most 34 s.
	passTimeout = 2 * time.Minute

	// containerManager is the operator's container in config/manager.
	containerManager = "manager"
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1alpha1.AddToScheme, cmv1.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	return scheme, nil
}

// run makes the manager and keeps it running until ctx ends or something fails.
func run(ctx context.Context, restConfig *rest.Config, o *options) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	serving, err := o.serving(ctx, restConfig, scheme)
	if err != nil {
		return err
	}
	server := serving.server
	managerOptions := o.managerOptions(scheme, server)
	mgr, err := ctrl.NewManager(restConfig, managerOptions)
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	if err := o.setup(ctx, mgr, server); err != nil {
		return err
	}
	for _, runnable := range serving.runnables {
		if err := mgr.Add(runnable); err != nil {
			return err
		}
	}
	return mgr.Start(o.drained(ctx, server))
}

// drained ends a while after ctx does, in which the webhooks still answer but send their callers elsewhere.
func (o *options) drained(ctx context.Context, server *certs.Server) context.Context {
	if server == nil {
		return ctx
	}
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		server.Drain()
		time.AfterFunc(o.shutdownDelay, cancel)
	})
	return later
}

func (o *options) managerOptions(scheme *runtime.Scheme, server *certs.Server) ctrl.Options {
	options := ctrl.Options{
		Scheme: scheme,
		Cache:  o.cache(reconciler.CacheOptions()),
		Client: client.Options{FieldOwner: naming.FieldManager},
		Metrics: metricsserver.Options{
			BindAddress: o.metricsBind, SecureServing: true, TLSOpts: []func(*tls.Config){certs.HardenTLS},
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress:        o.probeBind,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		GracefulShutdownTimeout:       new(shutdownTimeout),
		Controller:                    config.Controller{EnableWarmup: new(true), ReconciliationTimeout: passTimeout},
	}
	if server != nil {
		options.WebhookServer = server
		options.Metrics.TLSOpts = []func(*tls.Config){server.TLS}
	}
	return options
}

// cache narrows options to the watched namespaces.
func (o *options) cache(options cache.Options) cache.Options {
	if len(o.namespaces) == 0 {
		return options
	}
	options.DefaultNamespaces = map[string]cache.Config{}
	for _, name := range o.namespaces {
		options.DefaultNamespaces[name] = cache.Config{}
	}
	return options
}

func (o *options) setup(ctx context.Context, mgr ctrl.Manager, server *certs.Server) error {
	image, err := o.agentImage(ctx, mgr.GetAPIReader())
	if err != nil {
		return err
	}
	images, err := o.images()
	if err != nil {
		return err
	}
	defaults := v1alpha1.Defaults{Version: o.defaultVersion, Storage: o.defaultStorage}
	//nolint:contextcheck // What it registers lives as long as the manager, and has the manager's context.
	if err := reconciler.SetupWithManager(mgr, reconciler.Options{
		OperatorImage: image, Images: images, Defaults: defaults, PostgresUID: o.postgresUID,
		LeaseDuration: o.failoverLease, MaxConcurrentReconciles: o.concurrency,
		NoPreflight: !o.preflight,
	}); err != nil {
		return fmt.Errorf("set up the reconciler: %w", err)
	}
	ready := healthz.Ping
	if server != nil {
		if err := webhooks.SetupWithManager(mgr, webhooks.Options{Defaults: defaults}); err != nil {
			return fmt.Errorf("set up the webhooks: %w", err)
		}
		ready = server.ReadyChecker()
	}
	if err := mgr.AddReadyzCheck("webhook", ready); err != nil {
		return err
	}
	return mgr.AddHealthzCheck("ping", healthz.Ping)
}

// agentImage is the image with this program in it. Reading it from the operator's own pod means that whatever changes
// the image of the operator (an overlay, kubectl set image, a registry mirror) changes the agents' with it.
func (o *options) agentImage(ctx context.Context, reader client.Reader) (string, error) {
	if o.operatorImage != "" {
		return o.operatorImage, nil
	}
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.podName}, pod); err != nil {
		return "", fmt.Errorf("read the operator's own pod for its image (--operator-image gives it without): %w", err)
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == containerManager {
			return pod.Spec.Containers[i].Image, nil
		}
	}
	return "", fmt.Errorf("pod %s/%s has no container %q to read the image from: use --operator-image",
		o.namespace, o.podName, containerManager)
}
