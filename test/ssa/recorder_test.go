package ssa_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// TestTheRecorderFindsLies, so that a history without any means something.
func TestTheRecorderFindsLies(t *testing.T) {
	stored := func(generation int64, ready metav1.ConditionStatus, memory string) client.Object {
		c := cluster("ns", "orders", 1)
		c.Generation = generation
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready, ObservedGeneration: generation}}
		return c
	}
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}}
	set.Annotations = map[string]string{naming.AnnotationGeneration: "1"}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-orders-0"}}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
	report, err := json.Marshal(contract.Report{
		State:        contract.StateRunning,
		SettingsHash: decide.Next(&snapshot.Cluster{Object: cluster("ns", "orders", 1)}, operatorSettings, time.Time{}).SettingsHash,
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(ready corev1.ConditionStatus) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "orders-0", Annotations: map[string]string{naming.AnnotationReport: string(report)},
		}}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	type step struct {
		after  time.Duration
		object client.Object
	}
	unready, well := step{0, pod("False")}, step{0, pod("True")}
	tests := map[string]struct {
		steps  []step
		truths int
		lie    string
	}{
		"the truth":                    {[]step{well, {0, stored(1, "True", "64Mi")}}, 1, ""},
		"told soon":                    {[]step{well, {0, stored(1, "True", "64Mi")}, unready, {time.Second, stored(1, "False", "64Mi")}}, 1, ""},
		"before it was so":             {[]step{unready, {0, stored(1, "True", "64Mi")}, well}, 0, "before the facts"},
		"of a spec that is not so yet": {[]step{well, {0, stored(1, "True", "64Mi")}, {0, stored(2, "True", "65Mi")}}, 1, "before the facts"},
		"told late": {
			[]step{well, {0, stored(1, "True", "64Mi")}, unready, {time.Minute, stored(1, "True", "64Mi")}}, 1, "stays True",
		},
		"from what was so long ago": {
			[]step{well, {0, stored(1, "False", "64Mi")}, unready, {time.Minute, stored(1, "True", "64Mi")}}, 1, "becomes True",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, now := &recorder{}, time.Unix(0, 0)
			for i, step := range append([]step{{0, stored(1, "False", "64Mi")}, {0, set}, {0, claim}}, test.steps...) {
				now = now.Add(step.after)
				r.seen = append(r.seen, recorded{uint64(i), now, watch.Modified, step.object})
			}
			lies, truths := r.lies()
			if found := strings.Join(lies, "; "); truths != test.truths || (test.lie == "") != (found == "") || !strings.Contains(found, test.lie) {
				t.Errorf("%d truths, and lies %q; want %d and %q", truths, found, test.truths, test.lie)
			}
		})
	}
}
