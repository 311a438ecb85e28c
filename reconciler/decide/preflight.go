package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Preflight is what the API server must be willing to take before a plan may be carried out.
type Preflight struct {
	// First says that there is nothing yet that could be disturbed, so that nothing needs to be made either.
	First bool
	// Pods is how many pods are to be made in addition, the first of them of this ordinal.
	Pods    int32
	Ordinal int32
	// Replaced is the pod whose place one of another template will take; nil when there is none. Ordinal is its own.
	Replaced *corev1.Pod
	// Claims are the volume claims to be made; Grown are those that grow, by how much.
	Claims []Claim
	Grown  map[string]resource.Quantity
}

// Needed says that there is anything to ask.
func (f *Preflight) Needed() bool {
	return f.Pods > 0 || f.Replaced != nil || len(f.Claims) > 0 || len(f.Grown) > 0
}

// Drop leaves out a volume claim.
func (f *Preflight) Drop(s *snapshot.Cluster, name string) {
	f.Claims = slices.DeleteFunc(f.Claims, func(c Claim) bool { return s.Names().PVC(c.Ordinal) == name })
	delete(f.Grown, name)
}

// Preflight finds what a plan makes anew. wanted is the hash of the pod template that it leads to. Pods that are missing
// although the StatefulSet has asked for them already are its controller's affair.
func (p *Plan) Preflight(s *snapshot.Cluster, wanted string) Preflight {
	var f Preflight
	f.claims(s, p.Claims)
	live := s.LiveReplicas()
	if s.StatefulSet == nil {
		if live > 0 {
			// Pods run that need their StatefulSet back, whatever else.
			return Preflight{Grown: f.Grown}
		}
		f.First, f.Pods = true, p.Replicas
		return f
	}
	if p.Replicas > live {
		f.Pods, f.Ordinal = p.Replicas-live, live
	}
	if f.Pods == 0 {
		f.replaced(p, s, wanted)
	}
	return f
}

func (f *Preflight) claims(s *snapshot.Cluster, claims []Claim) {
	for _, claim := range claims {
		instance, _ := s.Instance(claim.Ordinal)
		requested, known := instance.Requested()
		switch {
		case instance.Claim == nil:
			f.Claims = append(f.Claims, claim)
		case known && requested.Cmp(claim.Size) < 0:
			by := claim.Size.DeepCopy()
			by.Sub(requested)
			if f.Grown == nil {
				f.Grown = map[string]resource.Quantity{}
			}
			f.Grown[instance.Claim.Name] = by
		}
	}
}

// replaced is the pod that goes first: now, or once the StatefulSet has its new template.
func (f *Preflight) replaced(p *Plan, s *snapshot.Cluster, wanted string) {
	changes := s.StatefulSet.Spec.Template.Annotations[naming.AnnotationTemplateHash] != wanted
	for _, instance := range rollOrder(s) {
		if instance.Terminating() || instance.Ordinal >= p.Replicas {
			continue
		}
		if p.Restart != nil && p.Restart.UID == instance.Pod.UID ||
			p.Restart == nil && changes && instance.TemplateHash() != wanted {
			f.Replaced, f.Ordinal = instance.Pod, instance.Ordinal
			return
		}
	}
}

// Held is a plan without all that makes pods or volumes, or disturbs an instance.
func (p Plan) Held(s *snapshot.Cluster) Plan {
	p.Recreate, p.Restart = "", nil
	claims := p.Claims
	p.Claims = nil
	for _, claim := range claims {
		instance, _ := s.Instance(claim.Ordinal)
		requested, known := instance.Requested()
		if !known {
			continue
		}
		if requested.Cmp(claim.Size) < 0 {
			claim.Size = requested
		}
		p.Claims = append(p.Claims, claim)
	}
	return p
}
