package ssa_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/status"
)

// What the server answers is what apply builds on: each of its refusals is provoked here.
func TestRefusalsOfTheServerAreToldApart(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	live := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "live"}, Data: map[string]string{"key": "theirs"},
	}
	create(t, live)
	terminating := plane.Namespace(t)
	plane.Kubectl(t, "delete", "namespace", terminating, "--wait=false")
	send := func(config *corev1ac.ConfigMapApplyConfiguration) error {
		return plane.Client.Apply(t.Context(), config, client.FieldOwner("test"))
	}
	raw := func(object map[string]any) error {
		return plane.Client.Apply(t.Context(),
			client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: object}), client.FieldOwner("test"))
	}
	tests := map[string]struct {
		err  func() error
		want outcome.Class
	}{
		"absent, with a resourceVersion: created": {func() error {
			return send(corev1ac.ConfigMap("new", namespace).WithResourceVersion("1"))
		}, ""},
		"present, with a resourceVersion that it never had": {func() error {
			return send(corev1ac.ConfigMap("live", namespace).WithResourceVersion("1").WithData(map[string]string{"other": "x"}))
		}, outcome.ClassStale},
		"field of another manager": {func() error {
			return send(corev1ac.ConfigMap("live", namespace).WithData(map[string]string{"key": "ours"}))
		}, outcome.ClassFieldConflict},
		"absent, with a UID": {func() error {
			return send(corev1ac.ConfigMap("absent", namespace).WithUID("8c7e3f3e-0000-4000-8000-000000000001"))
		}, outcome.ClassGone},
		"another UID": {func() error {
			return send(corev1ac.ConfigMap("live", namespace).WithUID("8c7e3f3e-0000-4000-8000-000000000001"))
		}, outcome.ClassReplaced},
		"unknown field": {func() error {
			return raw(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "nonsense": "x",
				"metadata": map[string]any{"name": "odd", "namespace": namespace},
			})
		}, outcome.ClassUnsupported},
		"unknown kind": {func() error {
			return raw(map[string]any{
				"apiVersion": "example.com/v1", "kind": "Nothing",
				"metadata": map[string]any{"name": "odd", "namespace": namespace},
			})
		}, outcome.ClassNoKind},
		"namespace is going away": {func() error {
			return send(corev1ac.ConfigMap("new", terminating))
		}, outcome.ClassNamespaceTerminating},
		"invalid": {func() error {
			return send(corev1ac.ConfigMap("live", namespace).WithLabels(map[string]string{"a": "not a label!"}))
		}, outcome.ClassInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test.err(); apply.Classify(err) != test.want {
				t.Errorf("class %q, want %q: %v", apply.Classify(err), test.want, err)
			}
		})
	}
	conflicts := apply.Conflicts(send(corev1ac.ConfigMap("live", namespace).WithData(map[string]string{"key": "ours"})))
	if len(conflicts) != 1 || conflicts[0].Path != ".data.key" || conflicts[0].Manager == "unknown" {
		t.Errorf("conflicts %v", conflicts)
	}
}

func TestStatusReachesOnlyTheClusterThatItIsOf(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	old := cluster(namespace, "orders", 1)
	create(t, old)
	zero := int32(0)
	computed := &v1alpha1.PostgresClusterStatus{ObservedGeneration: 7, Replicas: &zero, ReadyReplicas: &zero, Selector: "a=b"}
	send := func() error {
		return plane.Client.Status().Apply(t.Context(), status.Configuration(old, computed),
			client.FieldOwner(naming.FieldManager), client.ForceOwnership)
	}
	if err := plane.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if class := apply.Classify(send()); class != outcome.ClassGone {
		t.Errorf("absent cluster: class %q", class)
	}
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(old), &v1alpha1.PostgresCluster{}); err == nil {
		t.Error("the status made a cluster")
	}
	again := cluster(namespace, "orders", 1)
	create(t, again)
	if class := apply.Classify(send()); class != outcome.ClassStale {
		t.Errorf("another cluster: class %q", class)
	}
	live, err := get(t.Context(), namespace, "orders", &v1alpha1.PostgresCluster{})
	if err != nil || live.Status.ObservedGeneration == 7 {
		t.Errorf("the old status reached the new cluster: %v", err)
	}
}
