// Package reconciler brings PostgresClusters to what their specs say, one way
// in each pass: observe, decide, render, apply, status.
package reconciler

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/observe"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
	"github.com/acme/pg-operator/webhooks/rules"
)

// Reconciler reconciles PostgresClusters.
type Reconciler struct {
	options  Options
	cache    client.Reader
	live     client.Reader
	observer *observe.Observer
	applier  *apply.Applier
	status   statusWriter
	recorder events.EventRecorder
	now      func() time.Time
	memories memories
}

// +kubebuilder:rbac:groups=db.example.com,resources=postgresclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=db.example.com,resources=postgresclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile is one pass over one cluster.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cached := &v1alpha1.PostgresCluster{}
	if err := r.cache.Get(ctx, request.NamespacedName, cached); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	m := r.remember(request.NamespacedName, cached)
	facts, err := r.observer.Facts(ctx, cached)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	now := r.now()
	fingerprint := facts.Fingerprint()
	if wait, quiet := m.quiet(fingerprint, now); quiet {
		passes.WithLabelValues(passQuiet).Inc()
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	s, err := r.snapshot(ctx, facts, cached, m, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing: %w", err)
	}
	if generation, known := s.RenderedGeneration(); known && generation > s.Object.Generation {
		return ctrl.Result{RequeueAfter: time.Second}, nil // The cache is behind; its event is on the way.
	}
	plan := decide.Next(s, r.options.decide(), now)
	pass := r.applier.Begin(r.owner(s.Object))
	if plan.Apply {
		if err := r.apply(ctx, s, plan, pass); err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.finish(ctx, s, plan, pass, m, fingerprint)
}

// snapshot completes the facts with defaults, with what is known of later, and with what must be read live.
func (r *Reconciler) snapshot(
	ctx context.Context, facts *observe.Facts, cached *v1alpha1.PostgresCluster, m *memory, now time.Time,
) (*snapshot.Cluster, error) {
	cluster := cached.DeepCopy()
	m.newestStatus(cluster)
	cluster.Default(r.options.Defaults)
	s := facts.Snapshot(cluster)
	s.Invalid = rules.ValidateSpec(&cluster.Spec)
	if err := r.observer.StorageClasses(ctx, s); err != nil {
		return nil, err
	}
	if !s.Deleting() && s.StatefulSet != nil && s.Missing(s.WantedReplicas()) && now.Sub(m.started) > refusalDelay {
		if err := r.observer.Refusals(ctx, s, now); err != nil {
			log.FromContext(ctx).Error(err, "Failed to read why objects are missing")
		}
	}
	return s, nil
}

// refusalDelay is how long pods and volumes may be missing after the first pass before somebody is asked why.
const refusalDelay = 2 * time.Second

// finish stores the status, then tells of transitions, then says when to look again.
func (r *Reconciler) finish(
	ctx context.Context, s *snapshot.Cluster, plan decide.Plan, pass *apply.Pass, m *memory, fingerprint uint64,
) (ctrl.Result, error) {
	if pass.Result.Gone {
		return ctrl.Result{}, nil
	}
	now := r.now()
	computed, told := status.Compute(s, plan, &pass.Result, now)
	stored, err := r.storeStatus(ctx, s.Object, computed, m)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("storing the status: %w", err)
	}
	for _, event := range told {
		if !event.Transition || stored == storedNow {
			r.recorder.Eventf(s.Object, nil, event.Type, event.Reason, event.Action, "%s", event.Message)
		}
	}
	r.measure(ctx, s, &computed, &pass.Result)
	if s.Deleting() {
		return ctrl.Result{}, nil
	}
	wait := delay(plan, &pass.Result)
	if stored == storedLater {
		wait = soonest(wait, detailPeriod)
	}
	if pass.Pending() {
		wait = soonest(wait, apply.CacheLag)
	}
	next := pass.NextEnsure(r.ensurePeriod(&computed)).Sub(now)
	wait = soonest(wait, max(next, time.Second))
	if pass.Result.Quiet() && stored == storedSame && plan.Quiet() {
		m.rest(fingerprint, now.Add(wait))
	}
	return ctrl.Result{RequeueAfter: wait}, transient(&pass.Result)
}

// delay is when to try again what failed, or to look again where no event will tell.
func delay(plan decide.Plan, result *outcome.Result) time.Duration {
	wait := plan.RequeueAfter
	for i := range result.Failures {
		failure := &result.Failures[i]
		wait = soonest(wait, failure.Class.Delay())
		if failure.RetryAfter > 0 {
			wait = soonest(wait, failure.RetryAfter)
		}
	}
	return wait
}

func soonest(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// transient returns what the work queue's back-off is for.
func transient(result *outcome.Result) error {
	for i := range result.Failures {
		if failure := &result.Failures[i]; failure.Class == outcome.ClassTransient && failure.Err != nil {
			return fmt.Errorf("applying %s %s: %w", failure.Kind, failure.Name, failure.Err)
		}
	}
	return nil
}
