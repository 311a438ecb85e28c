package render

import (
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Pod is the pod that the StatefulSet's controller makes for an ordinal (newStatefulSetPod in kubernetes/pkg/controller/
// statefulset). While there is no StatefulSet yet, its owner has the cluster's UID. It does not block the owner's
// deletion: that would take a right on finalizers where OwnerReferencesPermissionEnforcement is on.
func Pod(s *snapshot.Cluster, set *appsv1ac.StatefulSetApplyConfiguration, ordinal int32) (*corev1.Pod, error) {
	data, err := json.Marshal(set.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("encoding the pod template: %w", err)
	}
	template := corev1.PodTemplateSpec{}
	if err := json.Unmarshal(data, &template); err != nil {
		return nil, fmt.Errorf("decoding the pod template: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = s.Object.Namespace, names(s).Instance(ordinal)
	uid, revision := s.Object.UID, names(s).StatefulSet()+"-new"
	if s.StatefulSet != nil {
		uid = s.StatefulSet.UID
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(int(ordinal))
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet", Name: names(s).StatefulSet(), UID: uid,
		Controller: new(true),
	}}
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, names(s).ServiceHeadless()
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: naming.VolumeData,
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: names(s).PVC(ordinal),
		}},
	})
	return pod, nil
}

// Claim is the volume claim that is applied for a wanted one, as an object to be created.
func Claim(s *snapshot.Cluster, claim decide.Claim) (*corev1.PersistentVolumeClaim, error) {
	data, err := json.Marshal(volumeClaim(s, claim))
	if err != nil {
		return nil, fmt.Errorf("encoding a volume claim: %w", err)
	}
	object := &corev1.PersistentVolumeClaim{}
	if err := json.Unmarshal(data, object); err != nil {
		return nil, fmt.Errorf("decoding a volume claim: %w", err)
	}
	return object, nil
}
