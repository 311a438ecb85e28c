package decide

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// claims plans the volumes: of every wanted instance, and of every removed one whose volume is kept. A volume never
// shrinks below what is provisioned, so a size that admission should have refused cannot lose data here.
func (p *Plan) claims(s *snapshot.Cluster) {
	wanted, err := resource.ParseQuantity(s.Object.Spec.Storage)
	if err != nil {
		return // An invalid spec; nothing will be applied.
	}
	ordinals := make([]int32, 0, len(s.Instances)+int(p.Replicas))
	for ordinal := range p.Replicas {
		ordinals = append(ordinals, ordinal)
	}
	for _, instance := range s.Instances {
		if instance.Ordinal >= p.Replicas && instance.Claim != nil {
			ordinals = append(ordinals, instance.Ordinal)
		}
	}
	p.TemplateStorage = wanted
	for _, ordinal := range ordinals {
		instance, _ := s.Instance(ordinal)
		if instance.Claim != nil && !instance.Claim.DeletionTimestamp.IsZero() {
			continue // It is made anew when it is gone.
		}
		claim := p.claim(s, instance, ordinal, wanted)
		if ordinal < p.Replicas && claim.Size.Cmp(p.TemplateStorage) > 0 {
			p.TemplateStorage = claim.Size
		}
		p.Claims = append(p.Claims, claim)
	}
	p.template(s)
}

func (p *Plan) claim(s *snapshot.Cluster, instance snapshot.Instance, ordinal int32, wanted resource.Quantity) Claim {
	claim := Claim{
		Ordinal: ordinal, Size: wanted,
		StorageClassName: s.Object.Spec.StorageClassName,
		SystemID:         instance.DataSystemID(),
		DataVersion:      instance.DataVersion(),
		Owned:            s.Object.Spec.DeletionPolicy == v1alpha1.DeletionPolicyDelete,
	}
	if instance.Claim == nil {
		if claim.StorageClassName == nil && s.DefaultStorageClass != "" {
			// Named from the beginning: naming it later, as below, would be a second write, just when the controller
			// that binds the volume writes too and would have to try again.
			claim.StorageClassName = &s.DefaultStorageClass
		}
		return claim
	}
	// The class of a volume is fixed, also that of one kept from an earlier cluster.
	claim.StorageClassName = instance.Claim.Spec.StorageClassName
	if requested, ok := instance.Requested(); ok && ordinal >= p.Replicas {
		claim.Size = requested
	}
	if capacity, ok := instance.Capacity(); ok && capacity.Cmp(claim.Size) > 0 {
		claim.Size = capacity
	}
	return claim
}

// ownership leaves nothing of the claims but the owners of the volumes there are: whether data outlives its cluster is
// obeyed whatever else must wait, because nobody can obey it once the cluster is gone.
func (p *Plan) ownership(s *snapshot.Cluster) {
	p.Claims, p.Recreate = nil, ""
	if s.Deleting() {
		return
	}
	for _, instance := range s.Instances {
		size, known := instance.Requested()
		if !known || !instance.Claim.DeletionTimestamp.IsZero() {
			continue
		}
		claim := p.claim(s, instance, instance.Ordinal, size)
		claim.Size = size
		if claim.Owned != snapshot.ControlledBy(instance.Claim, s.Object.UID) {
			p.Claims = append(p.Claims, claim)
		}
	}
}

// template decides whether the StatefulSet must be re-created for a larger volume claim template, which is immutable.
// A template that is larger than wanted stays: every claim is made by us before its pod.
func (p *Plan) template(s *snapshot.Cluster) {
	if s.StatefulSet == nil {
		return
	}
	for _, template := range s.StatefulSet.Spec.VolumeClaimTemplates {
		live, ok := template.Spec.Resources.Requests[corev1.ResourceStorage]
		if !ok {
			continue
		}
		switch live.Cmp(p.TemplateStorage) {
		case 1:
			p.TemplateStorage = live
		case -1:
			p.Recreate = s.StatefulSet.UID
		}
	}
}
