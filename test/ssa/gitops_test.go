package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

// desired is a PostgresCluster as it stands in a repository.
func desired(namespace string, replicas int64, metadata map[string]any) *unstructured.Unstructured {
	metadata["name"], metadata["namespace"] = "orders", namespace
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.PostgresClusterKind.Kind, "metadata": metadata,
		"spec": map[string]any{"replicas": replicas, "version": "17", "storage": "20Gi"},
	}}
}

// deliver applies what stands in the repository as a GitOps tool does.
func deliver(t testing.TB, manager string, object *unstructured.Unstructured, options ...client.ApplyOption) *unstructured.Unstructured {
	t.Helper()
	sent := object.DeepCopy()
	if err := plane.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(sent),
		append(options, client.FieldOwner(manager), client.ForceOwnership)...); err != nil {
		t.Fatal(err)
	}
	return sent
}

// drift fails when a tool's dry run would change anything of the live cluster, as its diff would show.
func drift(t testing.TB, manager string, object *unstructured.Unstructured) {
	t.Helper()
	planned := deliver(t, manager, object, client.DryRunAll)
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(v1alpha1.PostgresClusterKind)
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(object), live); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*unstructured.Unstructured{planned, live} {
		o.SetManagedFields(nil)
		delete(o.Object, "status") // Both tools leave it out; it may change in between.
		o.SetResourceVersion("")
	}
	if !equality.Semantic.DeepEqual(planned.Object, live.Object) {
		t.Errorf("%s sees drift:\n%v\nplanned\n%v", manager, live.Object, planned.Object)
	}
}

// ownsNoDefault fails when a manager owns fields that it did not write.
func ownsNoDefault(t testing.TB, namespace, manager string) {
	t.Helper()
	live, err := get(t.Context(), namespace, "orders", &v1alpha1.PostgresCluster{})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range live.ManagedFields {
		fields := string(entry.FieldsV1.GetRawBytes())
		if entry.Manager == manager && (strings.Contains(fields, "deletionPolicy") || strings.Contains(fields, "f:status")) {
			t.Errorf("%s owns %s", manager, fields)
		}
	}
}

func TestArgoCDSyncsWithoutDrift(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	world.Start(t, plane, namespace)
	startOperator(t, namespace)
	object := desired(namespace, 1, map[string]any{
		"labels":      map[string]any{naming.LabelInstance: "shop"},
		"annotations": map[string]any{"argocd.argoproj.io/tracking-id": "shop:db.example.com/PostgresCluster:" + namespace + "/orders"},
	})
	const manager = "argocd-controller"
	deliver(t, manager, object)
	c := cluster(namespace, "orders", 1)
	awaitReady(t, c)
	drift(t, manager, object)
	ownsNoDefault(t, namespace, manager)

	// It tracks a child by label, too: that is left to it, and the cluster is well.
	plane.Kubectl(t, "label", "service", "orders-rw", "-n", namespace, "--overwrite", "--field-manager="+manager,
		naming.LabelInstance+"=shop")
	awaitConflict(t, c, "Service", "orders-rw", ".metadata.labels."+naming.LabelInstance, manager, v1alpha1.ConflictYielded)
	awaitReady(t, c)
	controlplane.Eventually(t, func(context.Context) error {
		events := plane.Kubectl(t, "get", "events", "-n", namespace, "--field-selector", "reason=FieldYielded")
		if !strings.Contains(events, manager) {
			return fmt.Errorf("no event tells of it: %s", events)
		}
		return nil
	})
	quiet(t, namespace)
	drift(t, manager, object)
}

func TestFluxStripsKubectlAndSyncs(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	world.Start(t, plane, namespace)
	startOperator(t, namespace)
	manifest := "apiVersion: db.example.com/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders, namespace: " + namespace +
		"}\nspec: {replicas: 2, version: \"17\", storage: 20Gi, parameters: {work_mem: 5MB}}\n"
	if out := plane.TryKubectl(t, manifest, "apply", "-f", "-"); out.Code != 0 {
		t.Fatal(out.Stderr)
	}
	c := cluster(namespace, "orders", 2)
	awaitReady(t, c)
	// Before it first applies an object, Flux hands the fields of kubectl to its own manager.
	const manager = "kustomize-controller"
	live, err := get(t.Context(), namespace, "orders", &v1alpha1.PostgresCluster{})
	if err != nil {
		t.Fatal(err)
	}
	entries := live.ManagedFields
	for i := range entries {
		if strings.HasPrefix(entries[i].Manager, "kubectl") {
			entries[i].Manager, entries[i].Operation = manager, metav1.ManagedFieldsOperationApply
		}
	}
	setManagedFields(t, live, entries)
	object := desired(namespace, 2, map[string]any{"labels": map[string]any{"kustomize.toolkit.fluxcd.io/name": "shop"}})
	deliver(t, manager, object)
	awaitReady(t, c)
	if live, err = get(t.Context(), namespace, "orders", live); err != nil || len(live.Spec.Parameters) > 0 ||
		live.Annotations[corev1.LastAppliedConfigAnnotation] != "" || live.Status.ReadyReplicas == nil {
		t.Errorf("what kubectl had set is left, or the status is gone: %v, %v: %v", live.Spec.Parameters, live.Annotations, err)
	}
	drift(t, manager, object)
	ownsNoDefault(t, namespace, manager)

	// Somebody scales by hand: the next sync sets it back, and one that does not force says who owns it.
	plane.Kubectl(t, "scale", "pgc", "orders", "-n", namespace, "--replicas=1")
	awaitReady(t, c)
	out := plane.TryKubectl(t, strings.Replace(manifest, ", parameters: {work_mem: 5MB}", "", 1),
		"apply", "--server-side", "--field-manager=ci", "-f", "-")
	if out.Code == 0 || !strings.Contains(out.Stderr, `conflict with "kubectl" with subresource "scale"`) ||
		!strings.Contains(out.Stderr, ".spec.replicas") {
		t.Errorf("an unforced apply: exit code %d, %s", out.Code, out.Stderr)
	}
	deliver(t, manager, object)
	controlplane.Eventually(t, func(ctx context.Context) error {
		set, err := get(ctx, namespace, "orders", &appsv1.StatefulSet{})
		if err == nil && *set.Spec.Replicas != 2 {
			err = fmt.Errorf("%d replicas", *set.Spec.Replicas)
		}
		return err
	})
	awaitReady(t, c)

	// The number is handed over before the tool lets go of it: it does not fall back to 1.
	handover := desired(namespace, 2, map[string]any{})
	handover.Object["spec"] = map[string]any{"replicas": int64(2)}
	if err := plane.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(handover), client.FieldOwner("handover")); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(object.Object, "spec", "replicas")
	if released := deliver(t, manager, object); fmt.Sprint(released.Object["spec"].(map[string]any)["replicas"]) != "2" {
		t.Errorf("replicas fell back to %v", released.Object["spec"])
	}
}

// TestAutoscalers: one whose target is the cluster scales it; one whose target is the StatefulSet is set back and told.
func TestAutoscalers(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	const autoscaler = "kube-controller-manager"
	scale := func(object client.Object, replicas int32) {
		t.Helper()
		body := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		if err := plane.Client.SubResource("scale").Update(t.Context(), object, client.WithSubResourceBody(body),
			client.FieldOwner(autoscaler)); err != nil {
			t.Fatal(err)
		}
	}
	replicas := func(want int32) {
		t.Helper()
		controlplane.Eventually(t, func(ctx context.Context) error {
			set, err := get(ctx, c.Namespace, c.Name, &appsv1.StatefulSet{})
			if err == nil && *set.Spec.Replicas != want {
				err = fmt.Errorf("%d replicas, want %d", *set.Spec.Replicas, want)
			}
			return err
		})
	}
	live, err := get(t.Context(), c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
	if err != nil {
		t.Fatal(err)
	}
	scale(live, 2)
	replicas(2)
	awaitReady(t, c)
	if live, err = get(t.Context(), c.Namespace, c.Name, live); err != nil || len(live.Status.Conflicts) != 0 {
		t.Errorf("scaling the cluster is called a conflict: %v: %v", live.Status.Conflicts, err)
	}

	set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	scale(set, 5)
	replicas(2)
	awaitConflict(t, c, "StatefulSet", c.Name, ".spec.replicas", autoscaler, v1alpha1.ConflictTakenBack)
	controlplane.Eventually(t, func(context.Context) error {
		events := plane.Kubectl(t, "get", "events", "-n", c.Namespace, "--field-selector", "reason=FieldTakenBack")
		for _, word := range []string{autoscaler, "scaleTargetRef", "kubectl scale pgc/orders"} {
			if !strings.Contains(events, word) {
				return errors.New("the event does not say " + word + ": " + events)
			}
		}
		return nil
	})
}
