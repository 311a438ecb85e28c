package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// one is the count of a single object.
var one = *resource.NewQuantity(1, resource.DecimalSI)

// Pod is what a pod takes of quotas: kubernetes/pkg/quota/v1/evaluator/core/pods.go.
func Pod(pod *corev1.Pod) corev1.ResourceList {
	usage := corev1.ResourceList{"count/pods": one}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return usage
	}
	usage[corev1.ResourcePods] = one
	// What a kubelet has allocated of late counts too, if a pod was resized in place.
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	for name, quantity := range resourcehelper.PodRequests(pod, options) {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			usage[name] = quantity
		}
		usage[corev1.DefaultResourceRequestsPrefix+name] = quantity
	}
	for name, quantity := range resourcehelper.PodLimits(pod, options) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			usage["limits."+name] = quantity
		}
	}
	return usage
}

// classInfix stands between the name of a StorageClass and what a quota limits for that class alone.
const classInfix = ".storageclass.storage.k8s.io/"

// Claim is what a volume claim takes of quotas; class is empty when it is not known.
func Claim(class string, size resource.Quantity) corev1.ResourceList {
	usage := Growth(class, size)
	usage["count/persistentvolumeclaims"], usage[corev1.ResourcePersistentVolumeClaims] = one, one
	if class != "" {
		usage[corev1.ResourceName(class)+classInfix+corev1.ResourcePersistentVolumeClaims] = one
	}
	return usage
}

// Growth is what a volume claim takes when it grows by so much.
func Growth(class string, by resource.Quantity) corev1.ResourceList {
	usage := corev1.ResourceList{corev1.ResourceRequestsStorage: by}
	if class != "" {
		usage[corev1.ResourceName(class)+classInfix+corev1.ResourceRequestsStorage] = by
	}
	return usage
}

// scopes are all conditions under which a quota counts an object.
func scopes(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, scope := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// matches says that a quota counts a pod. Where this cannot be told it does not: the API server says so in time.
func matches(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, scope := range scopes(q) {
		met := false
		switch scope.ScopeName {
		case corev1.ResourceQuotaScopeTerminating:
			met = pod.Spec.ActiveDeadlineSeconds != nil
		case corev1.ResourceQuotaScopeNotTerminating:
			met = pod.Spec.ActiveDeadlineSeconds == nil
		case corev1.ResourceQuotaScopeBestEffort:
			met = bestEffort(pod)
		case corev1.ResourceQuotaScopeNotBestEffort:
			met = !bestEffort(pod)
		case corev1.ResourceQuotaScopePriorityClass:
			met = matchesPriority(&scope, pod.Spec.PriorityClassName)
		}
		if !met {
			return false
		}
	}
	return true
}

func matchesPriority(scope *corev1.ScopedResourceSelectorRequirement, class string) bool {
	switch scope.Operator {
	case corev1.ScopeSelectorOpExists:
		return class != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	case corev1.ScopeSelectorOpIn:
		return class != "" && slices.Contains(scope.Values, class)
	default:
		return !slices.Contains(scope.Values, class)
	}
}

// bestEffort says that no container asks for processors or memory.
func bestEffort(pod *corev1.Pod) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
					if quantity := list[name]; !quantity.IsZero() {
						return false
					}
				}
			}
		}
	}
	return true
}
