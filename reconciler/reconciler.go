// Package reconciler brings PostgresClusters to what their specs say, one way
// in each pass: observe, decide, render, apply, status.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/observe"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/render"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Reconciler reconciles PostgresClusters.
type Reconciler struct {
	options  Options
	cache    client.Reader
	live     client.Reader
	observer *observe.Observer
	applier  *apply.Applier
	status   statusWriter
	objects  func(*snapshot.Cluster, decide.Plan, render.Config) ([]runtime.ApplyConfiguration, error)
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
		if behind, failure := r.cacheBehind(ctx, s.Object); behind || failure != nil {
			return ctrl.Result{RequeueAfter: time.Second}, failure // The event that brings the cache up is on the way.
		}
	}
	if m.deletionUnseen(s, now) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	plan := decide.Next(s, r.options.decide(), now)
	hash, err := render.TemplateHash(s, plan, r.options.render())
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("rendering: %w", err)
	}
	plan.Template(s, hash)
	pass := r.applier.Begin(r.owner(s))
	if err := r.apply(ctx, s, plan, pass); err != nil {
		pass.Result.Fail(outcome.Key{GroupKind: v1alpha1.PostgresClusterKind.GroupKind(), Name: s.Object.Name},
			outcome.Failure{Class: outcome.ClassInternal, Message: err.Error(), Err: err})
	}
	return r.finish(ctx, s, plan, pass, m, fingerprint)
}

// cacheBehind asks the API server whether the cache shows an older spec of a cluster than was rendered already. If not, the
// generation that the StatefulSet names is somebody else's word, and is taken back.
func (r *Reconciler) cacheBehind(ctx context.Context, cached *v1alpha1.PostgresCluster) (bool, error) {
	live := metadata(v1alpha1.PostgresClusterKind)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return live.UID != cached.UID || live.Generation > cached.Generation, nil
}

// snapshot completes the facts with defaults, with what is known of later, and with what must be read live.
func (r *Reconciler) snapshot(
	ctx context.Context, facts *observe.Facts, cached *v1alpha1.PostgresCluster, m *memory, now time.Time,
) (*snapshot.Cluster, error) {
	cluster := cached.DeepCopy()
	m.newestStatus(cluster)
	cluster.Default(r.options.Defaults)
	s := facts.Snapshot(cluster)
	s.Invalid = invalid(s)
	if err := errors.Join(r.observer.StorageClasses(ctx, s), r.observer.Quotas(ctx, s)); err != nil {
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
