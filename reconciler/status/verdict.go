package status

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// verdict is the judgement from which all conditions follow.
type verdict struct {
	ready, progressing, stalled, paused bool

	reason  string
	message string
	// contest is a fight over a field: it keeps the cluster from being Ready, but hides no other reason.
	contest decide.Block

	// degraded has its own reason: what stands against the spec need not be what is missing. While it is False, its
	// reason is what history remembers.
	degraded        bool
	degradedReason  string
	degradedMessage string
}

// history is what cannot be observed. Stored conditions keep it; the reason of Ready alone would be lost in a trouble.
type history struct {
	// previous is the reason of Ready.
	previous string
	// first says that the cluster was never complete, scaling that it was not since the number of instances changed.
	first, scaling bool
}

// judge compares what is with what shall be.
func judge(s *snapshot.Cluster, plan decide.Plan, result *outcome.Result, now time.Time, h history) verdict {
	v := verdict{paused: s.Object.Spec.Paused}
	r := observeRollout(s, plan)
	h.first = (h.first || !r.data) && !r.complete()
	h.scaling = (h.scaling || r.live != r.wanted) && !r.complete()
	v.degrade(s, &r, h)
	trouble, stalled := findTrouble(s, plan, result, now)
	contest, progress := findContest(result), r.reason(h)
	switch {
	case s.Deleting():
		v.reason, v.message, v.progressing = v1alpha1.ReasonDeleting, "the cluster is being deleted", true
	case trouble.Reason != "":
		v.reason, v.message, v.stalled, v.progressing = trouble.Reason, trouble.Message, stalled, !stalled
	case v.paused && r.held():
		v.reason = v1alpha1.ReasonPaused
		v.message = "spec.paused is set, so what the spec asks is not done: " + r.message()
	case progress != "":
		v.reason, v.message, v.progressing = progress, joined(r.message(), leaving(result)), true
	case contest.Reason != "":
		v.reason, v.message = contest.Reason, contest.Message
	case unsettled(result) != "":
		v.reason, v.message, v.progressing = v1alpha1.ReasonApplyFailed, unsettled(result), true
	default:
		v.reason, v.message, v.ready = v1alpha1.ReasonAllReplicasReady, r.counts(), true
	}
	v.contest = contest
	return v
}

func (v *verdict) degrade(s *snapshot.Cluster, r *rollout, h history) {
	v.degraded = !s.Deleting() && r.degraded(h)
	switch {
	case v.degraded && !r.primary:
		v.degradedReason, v.degradedMessage = cmp.Or(r.waiting.Reason, v1alpha1.ReasonNoPrimary), r.message()
	case v.degraded && r.unconfirmed > 0:
		v.degradedReason, v.degradedMessage = v1alpha1.ReasonWaitingForReplicas, r.message()
	case v.degraded:
		v.degradedReason, v.degradedMessage = v1alpha1.ReasonHealing, r.message()
	case h.first:
		v.degradedReason = v1alpha1.ReasonProvisioning
	case h.scaling:
		v.degradedReason = v1alpha1.ReasonScaling
	default:
		v.degradedReason = v1alpha1.ReasonAsExpected
	}
}

func (v *verdict) conditions() []metav1.Condition {
	stalled := condition(v1alpha1.ConditionStalled, false, v1alpha1.ReasonAsExpected, "")
	if v.stalled {
		stalled = condition(v1alpha1.ConditionStalled, true, v.reason, v.message)
	}
	paused := condition(v1alpha1.ConditionPaused, false, v1alpha1.ReasonNotPaused, "")
	if v.paused {
		paused = condition(v1alpha1.ConditionPaused, true, v1alpha1.ReasonPaused, "spec.paused is set")
	}
	if !v.stalled && v.contest.Reason != "" {
		stalled = condition(v1alpha1.ConditionStalled, true, v.contest.Reason, v.contest.Message)
	}
	return []metav1.Condition{
		condition(v1alpha1.ConditionReady, v.ready, v.reason, v.message),
		condition(v1alpha1.ConditionProgressing, v.progressing, v.reason, v.message),
		condition(v1alpha1.ConditionDegraded, v.degraded, v.degradedReason, v.degradedMessage),
		stalled, paused,
	}
}

func condition(conditionType string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}
