package render

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// volumeClaim is made by us before the StatefulSet would: so its size, class and owner are ours to change. Without an
// owner it outlives the cluster.
func volumeClaim(s *snapshot.Cluster, claim decide.Claim) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	object := corev1ac.PersistentVolumeClaim(names(s).PVC(claim.Ordinal), s.Object.Namespace).
		WithLabels(labels(s)).
		WithSpec(claimSpec(claim.StorageClassName, corev1.ResourceList{corev1.ResourceStorage: claim.Size}))
	if claim.SystemID != "" {
		object.WithAnnotations(map[string]string{naming.AnnotationSystemID: claim.SystemID})
	}
	if claim.DataVersion != "" {
		object.WithAnnotations(map[string]string{naming.AnnotationDataVersion: claim.DataVersion})
	}
	if claim.Owned {
		object.WithOwnerReferences(owner(s))
	}
	return object
}

// volumeClaimTemplate is immutable in a StatefulSet, so only what never changes stands in it, and no namespace.
func volumeClaimTemplate(s *snapshot.Cluster, plan decide.Plan) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	template := corev1ac.PersistentVolumeClaim(naming.VolumeData, "").
		WithLabels(labels(s)).
		WithSpec(claimSpec(s.Object.Spec.StorageClassName, corev1.ResourceList{corev1.ResourceStorage: plan.TemplateStorage}))
	template.Namespace = nil
	return template
}

func claimSpec(class *string, requests corev1.ResourceList) *corev1ac.PersistentVolumeClaimSpecApplyConfiguration {
	spec := corev1ac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(requests))
	if class != nil {
		spec.WithStorageClassName(*class)
	}
	return spec
}
