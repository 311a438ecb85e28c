package ssa_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/test/world"
)

// operatorSettings are those of the operator under test, as far as they are part of what agents are told.
var operatorSettings = decide.Config{LeaseDuration: v1alpha1.DefaultLeaseDuration}

// facts are what the API server holds of one cluster at one moment.
type facts struct {
	cluster *v1alpha1.PostgresCluster
	set     *appsv1.StatefulSet
	pods    map[string]*corev1.Pod
	claims  map[string]*corev1.PersistentVolumeClaim
}

func newFacts() *facts {
	return &facts{pods: map[string]*corev1.Pod{}, claims: map[string]*corev1.PersistentVolumeClaim{}}
}

// put takes over one event.
func (f *facts) put(kind watch.EventType, object client.Object) {
	gone := kind == watch.Deleted
	switch object := object.(type) {
	case *v1alpha1.PostgresCluster:
		f.cluster = object
	case *appsv1.StatefulSet:
		f.set = object
		if gone {
			f.set = nil
		}
	case *corev1.Pod:
		f.pods[object.Name] = object
		if gone {
			delete(f.pods, object.Name)
		}
	case *corev1.PersistentVolumeClaim:
		f.claims[object.Name] = object
		if gone {
			delete(f.claims, object.Name)
		}
	}
}

// liveFacts reads the API server.
func liveFacts(t testing.TB, c *v1alpha1.PostgresCluster) *facts {
	t.Helper()
	f := newFacts()
	objects, err := world.Objects(t.Context(), plane.Client, c.Namespace,
		&v1alpha1.PostgresClusterList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		f.put(watch.Added, object)
	}
	return f
}

// departures are what is not as the stored spec says. They are read from the objects themselves, not from the
// operator's own marks on them.
func (f *facts) departures() []string {
	if f.cluster == nil || f.set == nil {
		return []string{"there is no StatefulSet"}
	}
	var wrong []string
	note := func(is bool, text string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(text, args...))
		}
	}
	spec := f.cluster.Spec
	note(f.set.Status.ObservedGeneration != f.set.Generation, "the StatefulSet was not observed")
	note(*f.set.Spec.Replicas != *spec.Replicas, "the StatefulSet has %d replicas", *f.set.Spec.Replicas)
	note(f.set.Annotations[naming.AnnotationGeneration] != strconv.FormatInt(f.cluster.Generation, 10) && !spec.Paused,
		"the StatefulSet is of generation %s", f.set.Annotations[naming.AnnotationGeneration])
	note(len(f.pods) != int(*spec.Replicas), "there are %d pods", len(f.pods))
	settings := decide.Next(&snapshot.Cluster{Object: f.cluster}, operatorSettings, time.Time{}).SettingsHash
	for ordinal := range *spec.Replicas {
		name := naming.Cluster(f.cluster.Name).Instance(ordinal)
		pod, claim := f.pods[name], f.claims[naming.Cluster(f.cluster.Name).PVC(ordinal)]
		if pod == nil || claim == nil {
			note(true, "%s or its volume is missing", name)
			continue
		}
		note(pod.DeletionTimestamp != nil || !podReady(pod), "%s is not ready", name)
		want, have := spec.Resources.Requests.Memory(), pod.Spec.Containers[0].Resources.Requests.Memory()
		note(!want.Equal(*have), "%s asks for %s of memory, not %s", name, have, want)
		capacity := claim.Status.Capacity[corev1.ResourceStorage]
		note(capacity.Cmp(resource.MustParse(spec.Storage)) < 0, "%s has %s of %s", name, capacity.String(), spec.Storage)
		report := contract.Report{}
		note(json.Unmarshal([]byte(pod.Annotations[naming.AnnotationReport]), &report) != nil, "%s has not reported", name)
		note(report.State != contract.StateRunning, "%s is %s", name, report.State)
		note(report.SettingsHash != settings, "%s has other settings in force", name)
	}
	return wrong
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// saysReady says that a cluster is said to be ready in its present generation, as kubectl wait understands it.
func (f *facts) saysReady() bool {
	ready := meta.FindStatusCondition(f.cluster.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == "True" && ready.ObservedGeneration >= f.cluster.Generation
}
