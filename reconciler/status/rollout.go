package status

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// rollout is how far the cluster is from its spec.
type rollout struct {
	// wanted instances by the spec; members by the plan; live by the StatefulSet; pods that exist; members that are ready.
	wanted, members, live, pods, ready int32
	// data says that a database exists.
	data bool
	// rendered says that the live StatefulSet is what the spec asks for, and was seen by its controller.
	rendered bool
	primary  bool
	// switching says that the primary is handing over.
	switching bool
	// outdated instances are of an older spec; small volumes have not grown yet.
	outdated, small bool
	// lost says that an instance that had data is gone or failed, so that it is not one that is just being added.
	lost bool
	// lacks are what keeps the cluster from its spec, in a stable order.
	lacks []string
	// certificates are not issued.
	certificates bool
	// waiting says why nobody takes over while there is no primary.
	waiting decide.Block
	// unconfirmed is how many replicas commits wait for, and have to, while there are too few; 0 when they do not.
	unconfirmed int32
}

func observeRollout(s *snapshot.Cluster, plan decide.Plan) rollout {
	r := rollout{
		wanted: s.WantedReplicas(), members: plan.Replicas, live: s.LiveReplicas(),
		data: plan.SystemID != "", rendered: rendered(s, plan), switching: handingOver(plan) != "",
	}
	primary, known := s.Primary()
	r.primary, r.waiting = known && primary.Ready(), waiting(s)
	if r.switching {
		r.lacks = append(r.lacks, handingOver(plan))
	}
	a := ask(s, plan)
	for ordinal := range r.members {
		instance, _ := s.Instance(ordinal)
		instance.Name = s.Names().Instance(ordinal)
		r.member(&a, instance)
	}
	if number := s.Object.Spec.SynchronousNumber(); r.primary && s.Object.Spec.SynchronousRequired() && r.ready-1 < number {
		r.unconfirmed = number
	}
	for _, instance := range s.Instances {
		if instance.Pod == nil {
			continue
		}
		r.pods++
		if instance.Ordinal >= r.members {
			r.lacks = append(r.lacks, instance.Name+" is to be removed")
		}
	}
	for _, certificate := range s.Certificates {
		if !snapshot.CertificateReady(certificate) {
			r.certificates = true
			r.lacks = append(r.lacks, fmt.Sprintf("Certificate %s is not issued", certificate.Name))
		}
	}
	return r
}

func (r *rollout) member(a *asked, instance snapshot.Instance) {
	if instance.Ready() {
		r.ready++
	} else if instance.DataSystemID() != "" && (instance.Pod == nil || instance.Terminating() || instance.Failed()) {
		r.lost = true
	}
	if instance.Pod != nil {
		r.outdated = r.outdated || a.outdated(instance) != ""
	}
	if _, known := instance.Capacity(); known {
		r.small = r.small || a.small(instance) != ""
	}
	if text := a.lacks(instance); text != "" {
		r.lacks = append(r.lacks, instance.Name+" "+text)
	}
}

// rendered compares the live StatefulSet with what the spec renders to. The generation that it carries says that all
// other children are of this spec, too. A paused cluster's StatefulSet keeps the generation of the last pass: as no field
// of the spec is for other children alone, it is of this spec if what it asks of instances is.
func rendered(s *snapshot.Cluster, plan decide.Plan) bool {
	set := s.StatefulSet
	generation, known := s.RenderedGeneration()
	return known && (generation == s.Object.Generation || s.Object.Spec.Paused) &&
		s.StatefulSetObserved() && set.DeletionTimestamp == nil && plan.Recreate == "" &&
		set.Spec.Replicas != nil && *set.Spec.Replicas == plan.Replicas &&
		set.Spec.Template.Annotations[naming.AnnotationTemplateHash] == plan.TemplateHash
}

// complete says that the cluster is what the spec says.
func (r *rollout) complete() bool {
	return r.rendered && r.primary && r.members == r.wanted && r.pods == r.members && r.ready == r.members && len(r.lacks) == 0
}

// held says that something is to be done that only the operator does.
func (r *rollout) held() bool {
	return !r.rendered || r.outdated || r.small || r.members != r.wanted
}

// reason names what is still going on; empty when the cluster is as the spec says.
func (r *rollout) reason(h history) string {
	switch {
	case r.complete():
		return ""
	case h.first:
		return v1alpha1.ReasonProvisioning
	case r.switching:
		return v1alpha1.ReasonSwitchingOver
	case r.waiting.Reason != "" && r.waiting.Reason != v1alpha1.ReasonWaitingForLease:
		return r.waiting.Reason
	case !r.primary && h.previous == v1alpha1.ReasonUpdating:
		return v1alpha1.ReasonUpdating // It is the primary's turn to restart.
	case !r.primary:
		return cmp.Or(r.waiting.Reason, v1alpha1.ReasonNoPrimary)
	case r.pods != r.wanted && (r.pods > r.wanted || h.scaling):
		return v1alpha1.ReasonScaling
	case r.small:
		return v1alpha1.ReasonResizing
	case r.ready < r.members && h.scaling:
		return v1alpha1.ReasonScaling
	case !r.rendered || r.outdated && r.ready == r.members || h.previous == v1alpha1.ReasonUpdating:
		return v1alpha1.ReasonUpdating
	case r.ready == r.members && r.certificates:
		return v1alpha1.ReasonCertificateNotReady
	case r.unconfirmed > 0:
		return v1alpha1.ReasonWaitingForReplicas
	default:
		return v1alpha1.ReasonHealing
	}
}

// degraded says that less serves than was asked for. An instance that is only just being added is not missed.
func (r *rollout) degraded(h history) bool {
	return !h.first && r.ready < min(r.wanted, r.members) && (!h.scaling || r.lost || !r.primary)
}

func (r *rollout) counts() string {
	return fmt.Sprintf("%d of %d instances are ready", r.ready, r.wanted)
}

func (r *rollout) message() string {
	text := r.counts()
	if len(r.lacks) > 0 {
		text += ": " + strings.Join(r.lacks, ", ")
	}
	switch {
	case r.waiting.Message != "":
		return r.waiting.Message + "; " + text
	case r.unconfirmed > 0:
		return fmt.Sprintf("commits wait until %d of the replicas stream; %s", r.unconfirmed, text)
	}
	return text
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
