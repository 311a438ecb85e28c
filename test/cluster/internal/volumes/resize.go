package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resizeConditions are the conditions of a claim that speak of an unfinished
// expansion.
var resizeConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// wantsGrowth says whether the claim asks for more than its volume has.
func wantsGrowth(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	return claim.Spec.Resources.Requests.Storage().Cmp(*volume.Spec.Capacity.Storage()) > 0
}

// unsettled says whether the claim's status still speaks of an expansion that
// its volume has behind it.
func unsettled(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	_, underway := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	return underway || claim.Status.Capacity.Storage().Cmp(*volume.Spec.Capacity.Storage()) < 0 ||
		slices.ContainsFunc(claim.Status.Conditions, isResizeCondition)
}

func isResizeCondition(condition corev1.PersistentVolumeClaimCondition) bool {
	return slices.Contains(resizeConditions, condition.Type)
}

// started records an expansion to the requested size.
func started(status *corev1.PersistentVolumeClaimStatus, request resource.Quantity, now metav1.Time) {
	clearConditions(status)
	status.Conditions = append(status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, LastTransitionTime: now,
	})
	allocate(status, request, corev1.PersistentVolumeClaimControllerResizeInProgress)
}

// failed records why an expansion did not happen. Its owner may then ask for
// less again.
func failed(status *corev1.PersistentVolumeClaimStatus, request resource.Quantity, reason string, now metav1.Time) {
	if condition := resizeError(status); condition != nil && condition.Message == reason {
		now = condition.LastTransitionTime
	}
	clearConditions(status)
	status.Conditions = append(status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue,
		Reason: "GrowFailed", Message: reason, LastTransitionTime: now,
	})
	allocate(status, request, corev1.PersistentVolumeClaimControllerResizeInfeasible)
}

// failedBefore says whether an expansion to the same request has failed, so that
// the repeated attempt is not announced.
func failedBefore(status *corev1.PersistentVolumeClaimStatus, request resource.Quantity) bool {
	return resizeError(status) != nil && status.AllocatedResources.Storage().Cmp(request) == 0
}

func resizeError(status *corev1.PersistentVolumeClaimStatus) *corev1.PersistentVolumeClaimCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PersistentVolumeClaimControllerResizeError {
			return &status.Conditions[i]
		}
	}
	return nil
}

// settled records that the volume has the given capacity and nothing is left to
// do: the file system grew with it.
func settled(status *corev1.PersistentVolumeClaimStatus, capacity resource.Quantity) {
	clearConditions(status)
	if status.Capacity == nil {
		status.Capacity = corev1.ResourceList{}
	}
	status.Capacity[corev1.ResourceStorage] = capacity
	if status.AllocatedResources != nil {
		status.AllocatedResources[corev1.ResourceStorage] = capacity
	}
	delete(status.AllocatedResourceStatuses, corev1.ResourceStorage)
}

func clearConditions(status *corev1.PersistentVolumeClaimStatus) {
	status.Conditions = slices.DeleteFunc(status.Conditions, isResizeCondition)
}

func allocate(status *corev1.PersistentVolumeClaimStatus, request resource.Quantity, state corev1.ClaimResourceStatus) {
	if status.AllocatedResources == nil {
		status.AllocatedResources = corev1.ResourceList{}
	}
	if status.AllocatedResourceStatuses == nil {
		status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	status.AllocatedResources[corev1.ResourceStorage] = request
	status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
}
