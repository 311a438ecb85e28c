package snapshot

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
)

// Ready says that the kubelet finds the instance ready: it accepts connections and, as a replica, streams.
func (i Instance) Ready() bool {
	if i.Pod == nil || i.Terminating() {
		return false
	}
	for _, condition := range i.Pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Terminating says that the pod is being deleted.
func (i Instance) Terminating() bool { return i.Pod != nil && !i.Pod.DeletionTimestamp.IsZero() }

// Running says that the postgres container runs, ready or not.
func (i Instance) Running() bool {
	state, ok := i.container(naming.ContainerPostgres)
	return ok && state.State.Running != nil
}

// Waiting says that the pod is on a node, its postgres container is not started yet, and the kubelet's status does not
// say what keeps it.
func (i Instance) Waiting() bool {
	status, ok := i.container(naming.ContainerPostgres)
	waiting := status.State.Waiting
	return ok && waiting != nil && !i.Terminating() && (waiting.Reason == "PodInitializing" || waiting.Reason == "ContainerCreating")
}

// Failed says that the agent cannot go on without help.
func (i Instance) Failed() bool {
	return i.Report != nil && i.Report.State == contract.StateFailed
}

// TemplateHash is the hash of the template that the pod was made from.
func (i Instance) TemplateHash() string {
	if i.Pod == nil {
		return ""
	}
	return i.Pod.Annotations[naming.AnnotationTemplateHash]
}

// Altered says that the pod runs another image than the StatefulSet asks for: it was made while somebody had changed the
// StatefulSet, whose hash tells nothing of that. Policies may rewrite images, too: those of pods of the present revision,
// and then also the agent's.
func (c *Cluster) Altered(i Instance) bool {
	if i.Pod == nil || c.StatefulSet == nil {
		return false
	}
	made, present := i.Pod.Labels[appsv1.ControllerRevisionHashLabelKey], c.StatefulSet.Status.UpdateRevision
	if made == "" || present == "" || made == present || !c.StatefulSetObserved() {
		return false
	}
	template := &c.StatefulSet.Spec.Template.Spec
	return image(i.Pod.Spec.InitContainers, naming.ContainerInstall) == image(template.InitContainers, naming.ContainerInstall) &&
		image(i.Pod.Spec.Containers, naming.ContainerPostgres) != image(template.Containers, naming.ContainerPostgres)
}

func image(containers []corev1.Container, name string) string {
	for i := range containers {
		if containers[i].Name == name {
			return containers[i].Image
		}
	}
	return ""
}

// Capacity of the instance's volume.
func (i Instance) Capacity() (size resource.Quantity, known bool) {
	if i.Claim == nil {
		return size, false
	}
	size, known = i.Claim.Status.Capacity[corev1.ResourceStorage]
	return size, known
}

// Requested size of the instance's volume.
func (i Instance) Requested() (size resource.Quantity, known bool) {
	if i.Claim == nil {
		return size, false
	}
	size, known = i.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return size, known
}

// DataSystemID is the system identifier of the data in the instance's volume.
func (i Instance) DataSystemID() string {
	if i.Report != nil && i.Report.SystemID != "" {
		return i.Report.SystemID
	}
	return i.claimAnnotation(naming.AnnotationSystemID)
}

// DataVersion is the major version of the data in the instance's volume.
func (i Instance) DataVersion() string {
	if i.Report != nil && i.Report.DataVersion != "" {
		return i.Report.DataVersion
	}
	return i.claimAnnotation(naming.AnnotationDataVersion)
}

// claimAnnotation tells nothing of a volume that is being deleted: its data goes too.
func (i Instance) claimAnnotation(name string) string {
	if i.Claim == nil || !i.Claim.DeletionTimestamp.IsZero() {
		return ""
	}
	return i.Claim.Annotations[name]
}

func (i Instance) container(name string) (corev1.ContainerStatus, bool) {
	if i.Pod == nil {
		return corev1.ContainerStatus{}, false
	}
	for _, status := range i.Pod.Status.ContainerStatuses {
		if status.Name == name {
			return status, true
		}
	}
	return corev1.ContainerStatus{}, false
}
