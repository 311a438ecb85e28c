package status

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// verdict is the judgement from which all conditions follow.
type verdict struct {
	ready, progressing, degraded, stalled, paused bool

	reason  string
	message string
	// contest is a fight over a field: it keeps the cluster from being Ready, but hides no other reason.
	contest decide.Block
}

// judge compares what is with what shall be. previous is the stored reason of Ready: it tells the first provisioning
// from later troubles.
func judge(
	s *snapshot.Cluster, plan decide.Plan, result *outcome.Result, now time.Time, previous string,
) verdict {
	v := verdict{paused: s.Object.Spec.Paused}
	r := observeRollout(s, plan)
	first := previous == "" || previous == v1alpha1.ReasonProvisioning || !r.data
	trouble, stalled := findTrouble(s, plan, result, now)
	contest, progress := findContest(result), r.reason(previous, first)
	v.degraded = !first && !s.Deleting() && r.ready < min(r.wanted, r.members) && progress != v1alpha1.ReasonScaling
	switch {
	case s.Deleting():
		v.reason, v.message, v.progressing = v1alpha1.ReasonDeleting, "the cluster is being deleted", true
	case len(s.Invalid) > 0:
		v.reason, v.message, v.stalled = trouble.Reason, trouble.Message, true
	case v.paused:
		v.reason = v1alpha1.ReasonPaused
		v.message = "spec.paused is set: nothing of this cluster is changed; " + r.counts()
	case trouble.Reason != "":
		v.reason, v.message, v.stalled, v.progressing = trouble.Reason, trouble.Message, stalled, !stalled
	case progress != "":
		v.reason, v.message, v.progressing = progress, r.message(), true
	case contest.Reason != "":
		v.reason, v.message = contest.Reason, contest.Message
	default:
		v.reason, v.message, v.ready = v1alpha1.ReasonAllReplicasReady, r.counts(), true
	}
	v.contest = contest
	return v
}

func (v verdict) conditions() []metav1.Condition {
	trouble := func(conditionType string, status bool) metav1.Condition {
		if status {
			return condition(conditionType, true, v.reason, v.message)
		}
		return condition(conditionType, false, v1alpha1.ReasonAsExpected, "")
	}
	paused := condition(v1alpha1.ConditionPaused, false, v1alpha1.ReasonNotPaused, "")
	if v.paused {
		paused = condition(v1alpha1.ConditionPaused, true, v1alpha1.ReasonPaused, "spec.paused is set")
	}
	stalled := trouble(v1alpha1.ConditionStalled, v.stalled)
	if !v.stalled && v.contest.Reason != "" {
		stalled = condition(v1alpha1.ConditionStalled, true, v.contest.Reason, v.contest.Message)
	}
	progressing := condition(v1alpha1.ConditionProgressing, v.progressing, v.reason, v.message)
	return []metav1.Condition{
		condition(v1alpha1.ConditionReady, v.ready, v.reason, v.message),
		progressing,
		trouble(v1alpha1.ConditionDegraded, v.degraded),
		stalled,
		paused,
	}
}

func condition(conditionType string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// rollout is how far the cluster is from its spec.
type rollout struct {
	// wanted instances by the spec; members by the plan; pods that exist, ready and present.
	wanted, members, pods, ready int32
	// data says that a database exists.
	data bool
	// rendered says that the StatefulSet is of this generation and was seen by its controller.
	rendered bool
	primary  bool
	// outdated instances run an older template or older settings; small volumes have not grown yet.
	outdated, small bool
	waiting         []string
}

func observeRollout(s *snapshot.Cluster, plan decide.Plan) rollout {
	r := rollout{wanted: s.WantedReplicas(), members: plan.Replicas, data: plan.SystemID != ""}
	generation, known := s.RenderedGeneration()
	r.rendered = known && generation == s.Object.Generation && s.StatefulSetObserved() &&
		s.StatefulSet.DeletionTimestamp == nil && plan.Recreate == ""
	hash := ""
	if s.StatefulSet != nil {
		hash = s.StatefulSet.Spec.Template.Annotations[naming.AnnotationTemplateHash]
	}
	primary, known := s.Primary()
	r.primary = known && primary.Ready()
	for _, instance := range s.Instances {
		if instance.Pod == nil {
			continue
		}
		r.pods++
		if instance.Ready() && instance.Ordinal < r.members {
			r.ready++
		}
		report := instance.Report
		if instance.TemplateHash() != hash || report == nil || report.SettingsHash != plan.SettingsHash ||
			len(report.PendingRestart) > 0 {
			r.outdated = true
		}
	}
	for ordinal := range r.members {
		instance, _ := s.Instance(ordinal)
		if !instance.Ready() {
			state := "missing"
			if instance.Pod != nil {
				state = inWords(instanceStatus(instance).State)
			}
			r.waiting = append(r.waiting, fmt.Sprintf("%s is %s", s.Names().Instance(ordinal), state))
		}
	}
	for _, claim := range plan.Claims {
		instance, _ := s.Instance(claim.Ordinal)
		capacity, known := instance.Capacity()
		if claim.Ordinal < r.members && known && capacity.Cmp(claim.Size) < 0 {
			r.small = true
		}
	}
	return r
}

// reason names what is still going on; empty when the cluster is as the spec says.
func (r *rollout) reason(previous string, first bool) string {
	allReady := r.ready == r.members && r.pods == r.members && r.members == r.wanted
	switch {
	case r.rendered && allReady && r.primary && !r.outdated && !r.small:
		return ""
	case first:
		return v1alpha1.ReasonProvisioning
	case !r.primary && previous == v1alpha1.ReasonUpdating:
		return v1alpha1.ReasonUpdating // It is the primary's turn to restart.
	case !r.primary:
		return v1alpha1.ReasonNoPrimary
	case r.pods != r.wanted && (r.pods > r.wanted || previous == v1alpha1.ReasonScaling || r.pods == r.ready && !r.rendered):
		return v1alpha1.ReasonScaling
	case r.small:
		return v1alpha1.ReasonResizing
	case r.ready < r.members && previous == v1alpha1.ReasonScaling:
		return v1alpha1.ReasonScaling
	case !r.rendered || r.outdated && r.ready == r.members || previous == v1alpha1.ReasonUpdating:
		return v1alpha1.ReasonUpdating
	default:
		return v1alpha1.ReasonHealing
	}
}

func (r *rollout) counts() string {
	return fmt.Sprintf("%d of %d instances are ready", r.ready, r.wanted)
}

func (r *rollout) message() string {
	if len(r.waiting) == 0 {
		return r.counts()
	}
	return r.counts() + ": " + strings.Join(r.waiting, ", ")
}

// inWords makes "not streaming" of "NotStreaming".
func inWords(state string) string {
	var words strings.Builder
	for i, letter := range state {
		if i > 0 && unicode.IsUpper(letter) {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(letter))
	}
	return words.String()
}
