package render

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/reconciler/decide"
)

// TestPod: policies may look at what the StatefulSet's controller adds to the template.
func TestPod(t *testing.T) {
	s := sample(t, "full.yaml")
	s.StatefulSet = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}}
	plan := decide.Next(s, deciders, now)
	set, err := statefulSet(s, plan, renderers)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := Pod(s, set, 2)
	if err != nil {
		t.Fatal(err)
	}
	name := s.Names().Instance(2)
	owner := metav1.GetControllerOf(pod)
	if pod.Name != name || pod.Spec.Hostname != name || pod.Spec.Subdomain != *set.Spec.ServiceName ||
		pod.Labels[appsv1.StatefulSetPodNameLabel] != name || pod.Labels[appsv1.PodIndexLabel] != "2" ||
		owner == nil || owner.UID != "set" {
		t.Errorf("not as the StatefulSet's controller makes it: %+v, %+v", pod.ObjectMeta, pod.Spec)
	}
	claims := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			claims[volume.Name] = volume.PersistentVolumeClaim.ClaimName
		}
	}
	for _, template := range set.Spec.VolumeClaimTemplates {
		if claims[*template.Name] != *template.Name+"-"+name {
			t.Errorf("volumes of claims: %v", claims)
		}
	}
	if pod.Spec.Containers[0].Image != plan.Image || len(pod.Spec.InitContainers) != 1 {
		t.Errorf("not of the template: %+v", pod.Spec)
	}
	claim, err := Claim(s, plan.Claims[0])
	if err != nil || claim.Name != s.Names().PVC(0) || claim.Spec.Resources.Requests[corev1.ResourceStorage] != plan.Claims[0].Size {
		t.Errorf("claim %+v: %v", claim, err)
	}
}
