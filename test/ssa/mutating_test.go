package ssa_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

// makeMutation makes a policy that changes objects of one namespace whenever they are written. patches are JSON patches in
// CEL.
func makeMutation(t testing.TB, namespace, name string, resources admissionregistrationv1.Rule, patches ...string) {
	t.Helper()
	full := name + "-" + namespace
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	if resources.Resources[0] != "pods" {
		operations = append(operations, admissionregistrationv1.Update)
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: resources},
				}},
			},
			FailurePolicy:      new(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		},
	}
	for _, patch := range patches {
		policy.Spec.Mutations = append(policy.Spec.Mutations, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patch},
		})
	}
	create(t, policy)
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: full},
	}
	create(t, binding)
	t.Cleanup(func() { _ = plane.Client.Delete(context.Background(), binding) })
}

const label = `JSONPatch{op: "add", path: "/metadata/labels/policy.example~1touched", value: "yes"}`

// rewritten makes policies that change all that a policy may well change in our pods and, if so asked, in other objects of
// ours, fields that we apply among them.
func rewritten(t testing.TB, namespace string, children bool) {
	t.Helper()
	rule := func(group, resource string) admissionregistrationv1.Rule {
		return admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}}
	}
	makeMutation(t, namespace, "pods", rule("", "pods"), `[
		`+label+`,
		JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "mirror.example/" + object.spec.containers[0].image},
		JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "sidecar", image: "sidecar:1"}},
		JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "sidecar", emptyDir: Object.spec.volumes.emptyDir{}}},
		JSONPatch{op: "add", path: "/spec/tolerations", value: [Object.spec.tolerations{key: "spot", operator: "Exists"}]}]`)
	if children {
		makeMutation(t, namespace, "sets", rule("apps", "statefulsets"), `[
			`+label+`,
			JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "house.example/" + object.spec.template.spec.containers[0].image},
			JSONPatch{op: "add", path: "/spec/template/metadata/annotations/policy.example~1touched", value: "yes"}]`,
			`object.spec.template.spec.containers.exists(c, c.name == "logs") ? [] : [
			JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "logs", image: "logs:1"}}]`)
		makeMutation(t, namespace, "services", rule("", "services"), `[`+label+`,
			JSONPatch{op: "add", path: "/spec/sessionAffinity", value: "ClientIP"}]`)
		makeMutation(t, namespace, "maps", rule("", "configmaps"), `[`+label+`]`)
	}
	controlplane.Eventually(t, func(ctx context.Context) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"a": "b"}}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"a": "b"}}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		set.Spec.Template.Labels, set.Spec.Template.Annotations = set.Labels, set.Labels
		set.Spec.Template.Spec = *pod.Spec.DeepCopy()
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"a": "b"}}}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"a": "b"}}}
		service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		probes := []client.Object{pod}
		if children {
			probes = append(probes, set, config, service)
		}
		for _, probe := range probes {
			if err := plane.Client.Create(ctx, probe, client.DryRunAll); err != nil {
				return err
			}
			if probe.GetLabels()["policy.example/touched"] == "" {
				return fmt.Errorf("the policy for %T is not in force", probe)
			}
		}
		return nil
	})
}

// TestMutatingPoliciesCauseNoLoop: what policies make of our objects is neither fought nor taken for a change of the spec.
func TestMutatingPoliciesCauseNoLoop(t *testing.T) {
	t.Parallel()
	for name, children := range map[string]bool{"of pods": false, "of pods and of what we apply": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			rewritten(t, namespace, children)
			world.Start(t, plane, namespace)
			o := startOperator(t, namespace)
			c := cluster(namespace, "orders", 2)
			create(t, c)
			awaitReady(t, c)
			checkRewritten(t, namespace, children)
			atRest := func() {
				wantAtRest(t, c, func() {
					for i := range 20 {
						touch(t, namespace, "orders-1", i)
					}
				})
			}
			atRest()
			pods := podUIDs(t, c)

			// One that has applied nothing yet applies all, and changes nothing.
			o.stop()
			before := versions(t, namespace)
			startOperator(t, namespace)
			// A change of the spec that asks for nothing shows that it is at work.
			edit(t, c, func() { c.Spec.UpgradePolicy = v1alpha1.UpgradePolicyAllowMajor })
			awaitReady(t, c)
			quiet(t, namespace)
			wantUnchanged(t, namespace, before, "StatefulSet") // It tells the generation that it is of.
			if after := podUIDs(t, c); !maps.Equal(after, pods) {
				t.Errorf("pods %v became %v", pods, after)
			}
			atRest()

			edit(t, c, func() { c.Spec.Image = "postgres:new" })
			awaitReady(t, c)
			rolled := podUIDs(t, c)
			checkRewritten(t, namespace, children)
			atRest()
			if after := podUIDs(t, c); !maps.Equal(after, rolled) {
				t.Errorf("rolled again: pods %v became %v", rolled, after)
			}
			if events := plane.Kubectl(t, "get", "events", "-n", namespace); strings.Contains(events, "FieldTakenBack") ||
				strings.Contains(events, v1alpha1.ReasonContested) {
				t.Errorf("a policy is fought:\n%s", events)
			}
		})
	}
}

// checkRewritten checks that the policies did their work.
func checkRewritten(t testing.TB, namespace string, children bool) {
	t.Helper()
	pod, err := get(t.Context(), namespace, "orders-1", &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	prefix, containers := "mirror.example/postgres:", 2
	if children {
		prefix, containers = "mirror.example/house.example/postgres:", 3
	}
	if !strings.HasPrefix(pod.Spec.Containers[0].Image, prefix) || len(pod.Spec.Containers) != containers {
		t.Errorf("image %s, %d containers", pod.Spec.Containers[0].Image, len(pod.Spec.Containers))
	}
}
