// Package pass measures the reconciler's passes against an API server alone.
package pass

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler"
	"github.com/acme/pg-operator/test/bench/figures"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

const (
	passes    = 20000
	userAgent = "pg-operator-bench"
	// settled is how long the operator must send nothing to be at rest.
	settled = 2 * time.Second
)

// BenchmarkPasses counts the calls to converge and times passes that find nothing to do.
func BenchmarkPasses(b *testing.B) {
	plane := controlplane.During(b, controlplane.Options{CertManager: true})
	namespace := plane.Namespace(b)
	world.Start(b, plane, namespace)
	r := start(b, plane)
	for _, replicas := range []int32{1, 3} {
		c := &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("db-%d", replicas)},
			Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "1Gi"},
		}
		before := len(calls(b, plane))
		if err := plane.Client.Create(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		await(b, plane, c)
		settle(b, plane)
		converge := calls(b, plane)[before:]
		status := 0
		for _, call := range converge {
			if call.ObjectRef.Subresource == "status" {
				status++
			}
		}
		figures.Value(fmt.Sprintf("%d instances, calls to converge", replicas), float64(len(converge)), "calls")
		figures.Value(fmt.Sprintf("%d instances, of these status", replicas), float64(status), "calls")
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
		before = len(calls(b, plane))
		durations := make([]time.Duration, 0, passes)
		for range passes {
			begin := time.Now()
			if _, err := r.Reconcile(b.Context(), request); err != nil {
				b.Fatal(err)
			}
			durations = append(durations, time.Since(begin))
		}
		figures.Durations(fmt.Sprintf("%d instances, pass at rest", replicas), durations)
		figures.Value(fmt.Sprintf("%d instances, calls in %d passes at rest", replicas, passes), float64(len(calls(b, plane))-before), "calls")
	}
}

func start(b *testing.B, plane *controlplane.ControlPlane) *reconciler.Reconciler {
	b.Helper()
	config := rest.CopyConfig(plane.Config)
	config.UserAgent, config.QPS = userAgent, -1
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: plane.Scheme, Cache: reconciler.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{FieldOwner: naming.FieldManager},
	})
	if err != nil {
		b.Fatal(err)
	}
	r, err := reconciler.Setup(mgr, reconciler.Options{
		OperatorImage: "registry.example/pg-operator:bench", Images: map[string]string{"17": "postgres:17"},
		Defaults: v1alpha1.Defaults{Version: "17", Storage: "1Gi"},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return r
}

// calls are the operator's requests so far, but for watches and events. It has its own user agent.
func calls(b *testing.B, plane *controlplane.ControlPlane) []auditv1.Event {
	b.Helper()
	return plane.AuditEvents(b, func(event *auditv1.Event) bool {
		return event.UserAgent == userAgent && event.ObjectRef != nil && event.Verb != "watch" &&
			event.ObjectRef.Resource != "events" && event.ObjectRef.Name != ""
	})
}

func await(b *testing.B, plane *controlplane.ControlPlane, c *v1alpha1.PostgresCluster) {
	b.Helper()
	controlplane.Eventually(b, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("not ready: %v", c.Status.Conditions)
		}
		return nil
	})
}

func settle(b *testing.B, plane *controlplane.ControlPlane) {
	b.Helper()
	last, since := -1, time.Now()
	controlplane.Eventually(b, func(context.Context) error {
		if count := len(calls(b, plane)); count != last {
			last, since = count, time.Now()
		}
		if time.Since(since) < settled {
			return fmt.Errorf("still busy after %d calls", last)
		}
		return nil
	})
}
