package reconciler

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/webhooks/rules"
)

// invalid judges a cluster as admission would have, for objects that were stored without it. What the spec was before
// is not stored anywhere, so a change is judged by what the StatefulSet was rendered from, and only until the spec is
// rendered: a spec that was accepted once stays accepted. Another major version is no matter of this guard: whatever
// the spec says, the data stays with the programs of its own version (decide).
func invalid(s *snapshot.Cluster) field.ErrorList {
	errs := rules.ValidateStored(&s.Object.Spec)
	generation, known := s.RenderedGeneration()
	if !known || generation >= s.Object.Generation {
		return errs
	}
	volumes, known := s.RenderedVolumes()
	if !known {
		return errs
	}
	old := s.Object.DeepCopy()
	old.Spec.Storage, old.Spec.StorageClassName = volumes.Storage, volumes.StorageClassName
	if provisioned, known := s.ProvisionedStorage(); known {
		old.Status.ProvisionedStorage = provisioned.String()
	}
	return append(errs, rules.ValidateVolumes(old, s.Object)...)
}
