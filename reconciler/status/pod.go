package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// replaced says that the plan brings an instance's pod to an end anyway, so that what keeps it from running stands
// against an older spec, and not against the present one.
func replaced(instance snapshot.Instance, plan decide.Plan) bool {
	return plan.Apply && (instance.Ordinal >= plan.Replicas || instance.TemplateHash() != plan.TemplateHash)
}

// podTrouble words what keeps the first such instance from running.
func podTrouble(s *snapshot.Cluster, plan decide.Plan) decide.Block {
	for _, instance := range s.Instances {
		if instance.Pod == nil || instance.Terminating() || instance.Ready() || replaced(instance, plan) {
			continue
		}
		if block := instanceTrouble(instance); block.Reason != "" {
			return block
		}
	}
	for _, instance := range s.Instances {
		if report := instance.Report; report != nil && report.SettingsError != "" && !replaced(instance, plan) &&
			(report.SettingsRefused == "" || report.SettingsRefused == plan.SettingsHash) {
			return decide.Block{Reason: v1alpha1.ReasonInstanceFailed, Message: fmt.Sprintf(
				"instance %s: PostgreSQL refuses the settings and keeps the old ones: %s; correct spec.parameters or spec.hba",
				instance.Name, instance.Report.SettingsError)}
		}
	}
	return decide.Block{}
}

func instanceTrouble(instance snapshot.Instance) decide.Block {
	pod := instance.Pod
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
			condition.Reason == corev1.PodReasonUnschedulable {
			return decide.Block{Reason: v1alpha1.ReasonUnschedulable, Message: fmt.Sprintf("Pod %q: %s", pod.Name, condition.Message)}
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if block := containerTrouble(pod, &statuses[i]); block.Reason != "" {
				return block
			}
		}
	}
	if instance.Failed() {
		return decide.Block{Reason: v1alpha1.ReasonInstanceFailed, Message: fmt.Sprintf(
			"instance %s: %s", instance.Name, instance.Report.Message)}
	}
	return decide.Block{}
}

// containerTrouble words why a container does not start. The kubelet's own texts hold back-off times, so only those
// that stay the same are passed on.
func containerTrouble(pod *corev1.Pod, container *corev1.ContainerStatus) decide.Block {
	waiting := container.State.Waiting
	if waiting == nil {
		return decide.Block{}
	}
	where := fmt.Sprintf("Pod %q, container %s: ", pod.Name, container.Name)
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		return decide.Block{Reason: v1alpha1.ReasonImagePullFailed, Message: where + unpullable(imageOf(pod, container))}
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return decide.Block{Reason: v1alpha1.ReasonInstanceFailed, Message: where + "cannot be created: " + firstLine(waiting.Message)}
	case "CrashLoopBackOff":
		message := "keeps ending; see its log"
		if last := container.LastTerminationState.Terminated; last != nil {
			message = fmt.Sprintf("keeps ending with exit code %d (%s)", last.ExitCode, last.Reason)
			if text := firstLine(last.Message); text != "" {
				message += ": " + text
			}
		}
		return decide.Block{Reason: v1alpha1.ReasonInstanceFailed, Message: where + message}
	}
	return decide.Block{}
}

func unpullable(image string) string {
	return fmt.Sprintf("image %q cannot be pulled: check its name, and that the nodes may pull it", image)
}

// imageOf is the image as the pod names it; the status may show a resolved form.
func imageOf(pod *corev1.Pod, status *corev1.ContainerStatus) string {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == status.Name {
				return containers[i].Image
			}
		}
	}
	return status.Image
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
