package reconciler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

// finish stores the status, then tells of transitions, then says when to look again.
func (r *Reconciler) finish(
	ctx context.Context, s *snapshot.Cluster, plan decide.Plan, pass *apply.Pass, m *memory, fingerprint uint64,
) (ctrl.Result, error) {
	if pass.Result.Gone {
		return ctrl.Result{}, nil
	}
	now := r.now()
	pass.Result.Untold = m.untold
	m.untold = slices.Concat(m.untold, pass.Result.TakenBack)
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
	if stored == storedNow {
		measureFailover(status.FailedOver(&s.Object.Status, &computed))
	}
	if status.Restarted(plan, &pass.Result) {
		m.removed, m.removedAt = plan.Restart.UID, now
	}
	r.measure(ctx, s, &computed, &pass.Result)
	if s.Deleting() {
		return ctrl.Result{}, nil
	}
	wait := soonest(delay(plan, &pass.Result), status.NextExpiry(&computed, now))
	if stored == storedLater {
		wait = soonest(wait, detailPeriod)
	}
	if !plan.Apply {
		wait = soonest(wait, ensureAtRest) // Nothing was ensured, so nothing of that is due.
	} else {
		if pass.Pending() {
			wait = soonest(wait, apply.CacheLag)
		}
		next := pass.NextEnsure(r.ensurePeriod(s, &computed)).Sub(now)
		wait = soonest(wait, max(next, time.Second))
	}
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
		wait = soonest(wait, cmp.Or(failure.RetryAfter, failure.Class.Delay()))
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
