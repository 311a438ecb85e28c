package ssa_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/test/controlplane"
)

// applierOf is an Applier on the real server, and passes of an owner that lives or not.
func applierOf(namespace string) func(alive bool, intents ...apply.Intent) func(context.Context) outcome.Result {
	nothing := func(string) bool { return false }
	applier := apply.New(plane.Client, plane.Client, naming.FieldManager, apply.Former{}, nothing, time.Now)
	return func(alive bool, intents ...apply.Intent) func(context.Context) outcome.Result {
		return func(ctx context.Context) outcome.Result {
			pass := applier.Begin(apply.Owner{
				Namespace: namespace, Name: "orders", UID: "owner", Kind: v1alpha1.PostgresClusterKind.GroupKind(),
				Confirm: func(context.Context) (bool, error) { return alive, nil },
			})
			pass.All(ctx, intents)
			return pass.Result
		}
	}
}

func ownedBy(t testing.TB, object client.Object, manager string) *fieldpath.Set {
	t.Helper()
	owned := fieldpath.NewSet()
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == manager {
			if err := owned.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return owned
}

// TestReuseOfAnIntentClaimsNothing: a client fills the server's answer into what it applied. Whoever applies that again
// owns every default, for ever.
func TestReuseOfAnIntentClaimsNothing(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	pass := applierOf(namespace)
	intent := corev1ac.Service("shared", namespace).WithSpec(corev1ac.ServiceSpec().WithPorts(corev1ac.ServicePort().WithPort(80)))
	if result := pass(true, apply.Intent{Object: intent})(t.Context()); len(result.Failures) > 0 {
		t.Fatal(result.Failures)
	}
	live, err := get(t.Context(), namespace, "shared", &corev1.Service{})
	if err != nil {
		t.Fatal(err)
	}
	first := ownedBy(t, live, naming.FieldManager)
	edit(t, live, func() { metav1.SetMetaDataAnnotation(&live.ObjectMeta, "example.com/note", "x") })
	result := pass(true, apply.Intent{Object: intent, Live: &metav1.PartialObjectMetadata{ObjectMeta: live.ObjectMeta}})(t.Context())
	if len(result.Failures) > 0 || result.Calls != 1 {
		t.Fatalf("%d calls, failures %v", result.Calls, result.Failures)
	}
	if live, err = get(t.Context(), namespace, "shared", live); err != nil {
		t.Fatal(err)
	}
	if second := ownedBy(t, live, naming.FieldManager); first.Empty() || !second.Equals(first) {
		t.Errorf("ownership grew from\n%s\nto\n%s", first, second)
	}
}

// TestTheDeadGetNoChildren: what a cache still shows of an object that is gone, or replaced, brings nothing to life and
// touches nothing of its successor.
func TestTheDeadGetNoChildren(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	pass := applierOf(namespace)
	intent := func(value string) runtime.ApplyConfiguration {
		return corev1ac.ConfigMap("child", namespace).WithData(map[string]string{"key": value})
	}
	exists := func() (*corev1.ConfigMap, bool) {
		live, err := get(t.Context(), namespace, "child", &corev1.ConfigMap{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return live, err == nil
	}
	if result := pass(false, apply.Intent{Object: intent("a")})(t.Context()); !result.Gone {
		t.Errorf("a dead owner: %+v", result)
	}
	if _, found := exists(); found {
		t.Fatal("a dead owner got a child")
	}
	pass(true, apply.Intent{Object: intent("a")})(t.Context())
	stale, found := exists()
	if !found {
		t.Fatal("a living owner got no child")
	}
	if err := plane.Client.Delete(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	result := pass(true, apply.Intent{Object: intent("b"), Live: stale})(t.Context())
	if _, found := exists(); found || len(result.Failures) != 1 || result.Failures[0].Class != outcome.ClassGone {
		t.Errorf("the child is gone: failures %v, found %v", result.Failures, found)
	}
	successor := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "child"}}
	create(t, successor)
	result = pass(true, apply.Intent{Object: intent("c"), Live: stale})(t.Context())
	live, _ := exists()
	if len(result.Failures) != 1 || result.Failures[0].Class != outcome.ClassReplaced || live.ResourceVersion != successor.ResourceVersion {
		t.Errorf("the child was replaced: failures %v, its successor %v", result.Failures, live)
	}
}

// skewed is a client of a newer version than the API server: it sends a field that the server does not know.
type skewed struct{ client.Client }

func (s skewed) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	object, ok := configuration.(interface {
		UnstructuredContent() map[string]any
		GroupVersionKind() schema.GroupVersionKind
	})
	if ok && object.GroupVersionKind().Kind == "NetworkPolicy" {
		if err := unstructured.SetNestedField(object.UnstructuredContent(), "x", "spec", "nonsense"); err != nil {
			return err
		}
	}
	return s.Client.Apply(ctx, configuration, opts...)
}

func TestUnsupportedFieldIsToldAndTriedSeldom(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	startOperatorWith(t, namespace, func(_ *rest.Config, options *ctrl.Options) {
		options.NewClient = func(config *rest.Config, clientOptions client.Options) (client.Client, error) {
			inner, err := client.New(config, clientOptions)
			return skewed{inner}, err
		}
	})
	c := cluster(namespace, "orders", 1)
	create(t, c)
	stalled(t, c, v1alpha1.ReasonUnsupportedByServer, "NetworkPolicy", "nonsense")
	controlplane.Eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, namespace, "orders", &policyv1.PodDisruptionBudget{})
		return err
	})
	quiet(t, namespace)
	tries := 0
	for _, call := range requests(t, namespace) {
		if call.ObjectRef.Resource == "networkpolicies" {
			tries++
		}
	}
	if _, err := get(t.Context(), namespace, "orders", &networkingv1.NetworkPolicy{}); err == nil || tries == 0 {
		t.Errorf("the field was not refused: %v after %d tries", err, tries)
	}
	if lines := strings.Count(summarise(requests(t, namespace)), "\n"); tries > 20 {
		t.Errorf("%d tries of what cannot succeed, in %d kinds of calls", tries, lines)
	}
}
