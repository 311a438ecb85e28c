package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// Webhooks are our webhook configurations and the server behind them.
type Webhooks struct {
	plane   *ControlPlane
	options envtest.WebhookInstallOptions
	stop    func() error
}

// ServeWebhooks serves what setup registers, until the test ends. Nothing is called before Install.
func (p *ControlPlane) ServeWebhooks(t testing.TB, setup func(ctrl.Manager) error) *Webhooks {
	t.Helper()
	w := &Webhooks{plane: p, options: envtest.WebhookInstallOptions{
		Paths: []string{filepath.Join(p.Repository, "config", "webhook", "manifests.yaml")},
	}}
	if err := w.options.PrepWithoutInstalling(); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(p.Config, ctrl.Options{
		Scheme:  p.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: w.options.LocalServingHost, Port: w.options.LocalServingPort, CertDir: w.options.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := setup(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, w.options.Cleanup())
	})
	t.Cleanup(func() { w.Stop(t) })
	ready := mgr.GetWebhookServer().StartedChecker()
	Eventually(t, func(context.Context) error { return ready(nil) })
	return w
}

// Stop stops the server, as if the operator had died. Configurations that are installed stay.
func (w *Webhooks) Stop(t testing.TB) {
	t.Helper()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// Install makes the API server call the webhooks, until the test ends. Tests that use it cannot run beside others.
func (w *Webhooks) Install(t testing.TB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // Also at the test's end.
	for _, configuration := range w.configurations() {
		if err := w.plane.Client.Create(ctx, configuration); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, configuration := range w.configurations() {
			if err := w.plane.Client.Delete(ctx, configuration); err != nil {
				t.Error(err)
			}
		}
		w.await(ctx, t, false)
	})
	w.await(ctx, t, true)
}

// await waits until a create calls every webhook that is for creations, or none.
func (w *Webhooks) await(ctx context.Context, t testing.TB, called bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error {
		before, err := w.plane.webhookCalls(ctx)
		if err != nil {
			return err
		}
		probe := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault}}
		if err = w.plane.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		after, err := w.plane.webhookCalls(ctx)
		if err != nil {
			return err
		}
		for _, name := range w.names() {
			if (after[name] > before[name]) != called {
				return fmt.Errorf("webhook %s: called %v, want %v", name, !called, called)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// configurations are copies, because a client writes into what it sends.
func (w *Webhooks) configurations() []client.Object {
	var all []client.Object
	for _, c := range w.options.MutatingWebhooks {
		all = append(all, c.DeepCopy())
	}
	for _, c := range w.options.ValidatingWebhooks {
		all = append(all, c.DeepCopy())
	}
	return all
}

// names are those of the webhooks that a create calls.
func (w *Webhooks) names() []string {
	var names []string
	add := func(name string, rules []admissionregistrationv1.RuleWithOperations) {
		if slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(r.Operations, admissionregistrationv1.Create)
		}) {
			names = append(names, name)
		}
	}
	for _, c := range w.options.MutatingWebhooks {
		for i := range c.Webhooks {
			add(c.Webhooks[i].Name, c.Webhooks[i].Rules)
		}
	}
	for _, c := range w.options.ValidatingWebhooks {
		for i := range c.Webhooks {
			add(c.Webhooks[i].Name, c.Webhooks[i].Rules)
		}
	}
	return names
}

// WebhookCalls is how often the API server has called each webhook so far, by the webhook's name.
func (p *ControlPlane) WebhookCalls(t testing.TB) map[string]int {
	t.Helper()
	calls, err := p.webhookCalls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

var webhookCallsLine = regexp.MustCompile(`(?m)^apiserver_admission_webhook_request_total\{.*name="([^"]+)".*\} ([0-9.e+]+)$`)

// webhookCalls reads the API server's own metric.
func (p *ControlPlane) webhookCalls(ctx context.Context) (map[string]int, error) {
	c, err := discovery.NewDiscoveryClientForConfig(p.Config)
	if err != nil {
		return nil, err
	}
	metrics, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	calls := map[string]int{}
	for _, match := range webhookCallsLine.FindAllSubmatch(metrics, -1) {
		n, err := strconv.ParseFloat(string(match[2]), 64)
		if err != nil {
			return nil, err
		}
		calls[string(match[1])] += int(n)
	}
	return calls, nil
}
