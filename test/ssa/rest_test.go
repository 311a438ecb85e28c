package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
)

// requests are the operator's requests about a namespace so far, but for watches.
func requests(t testing.TB, namespace string) []auditv1.Event {
	t.Helper()
	return plane.AuditEvents(t, func(event *auditv1.Event) bool {
		return event.ImpersonatedUser != nil && event.ImpersonatedUser.Username == operatorUser &&
			event.ObjectRef != nil && event.ObjectRef.Namespace == namespace && event.Verb != "watch"
	})
}

func summarise(events []auditv1.Event) string {
	counts := map[string]int{}
	for _, event := range events {
		counts[fmt.Sprintf("%s %s/%s %s", event.Verb, event.ObjectRef.Resource, event.ObjectRef.Subresource, event.ObjectRef.Name)]++
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%3d %s", counts[key], key))
	}
	return strings.Join(lines, "\n")
}

// versions are the resourceVersions of all children.
func versions(t testing.TB, namespace string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range childrenOf(t, namespace) {
		found[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
	}
	return found
}

// wantUnchanged compares the children with how they were, but for those in whose kind or name is one of some words.
func wantUnchanged(t testing.TB, namespace string, before map[string]string, but ...string) {
	t.Helper()
	now := versions(t, namespace)
	if !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(before))) {
		t.Errorf("there were %v, there are %v", before, now)
	}
	for object, version := range now {
		contains := func(word string) bool { return strings.Contains(object, word) }
		if before[object] != version && !slices.ContainsFunc(but, contains) {
			t.Errorf("%s changed from %q to %s", object, before[object], version)
		}
	}
}

// wantAtRest checks that an operator which is woken sends nothing, and that nothing of a cluster changes.
func wantAtRest(t testing.TB, c *v1alpha1.PostgresCluster, wake func()) {
	t.Helper()
	quiet(t, c.Namespace)
	seen, err := get(t.Context(), c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
	if err != nil {
		t.Fatal(err)
	}
	before, calls := versions(t, c.Namespace), len(requests(t, c.Namespace))
	wake()
	quiet(t, c.Namespace)
	if after := requests(t, c.Namespace); len(after) != calls {
		t.Errorf("%d calls at rest:\n%s", len(after)-calls, summarise(after[calls:]))
	}
	wantUnchanged(t, c.Namespace, before)
	if after, err := get(t.Context(), c.Namespace, c.Name, &v1alpha1.PostgresCluster{}); err != nil || after.ResourceVersion != seen.ResourceVersion {
		t.Errorf("the cluster changed from %s to %s: %v", seen.ResourceVersion, after.ResourceVersion, err)
	}
}

// touch changes an instance's pod in a way that wakes the operator and is nothing that it cares for.
func touch(t testing.TB, namespace, instance string, what any) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: instance}}
	edit(t, pod, func() { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "example.com/touched", fmt.Sprint(what)) })
}

// TestConvergesWithFewCalls counts: each of the 23 children of three instances is written once, and it is looked whether
// anybody has a Secret of the name that each of the 3 certificates will get. Besides that, whether the cluster is still
// there is asked once before anything is made (1), whether a pod and a volume would be taken is asked by dry runs (2), and
// what data there is, once it is known, goes to the volumes (3) and to the agents (1).
func TestConvergesWithFewCalls(t *testing.T) {
	c, _, _ := converged(t, 3)
	namespace := c.Namespace
	calls := requests(t, namespace)
	t.Logf("%d calls to converge:\n%s", len(calls), summarise(calls))
	t.Log(plane.Kubectl(t, "get", "events", "-n", namespace))
	byChild, total, confirmed, asked := map[string]int{}, 0, 0, 0
	for _, call := range calls {
		if strings.Contains(call.RequestURI, "dryRun=All") {
			asked++
			continue
		}
		if call.ObjectRef.Resource == "postgresclusters" && call.Verb == "get" {
			confirmed++
		}
		if call.ObjectRef.Resource != "events" && call.ObjectRef.Resource != "postgresclusters" {
			byChild[call.ObjectRef.Resource+" "+call.ObjectRef.Name]++
			total++
		}
	}
	const children, confirmations, identified = 23 + 3, 1, 3 + 1
	if len(byChild) != children || total > children+identified || confirmed > confirmations {
		t.Errorf("%d calls for %d children, and %d for the cluster; want at most %d for %d, and %d", total, len(byChild),
			confirmed, children+identified, children, confirmations)
	}
	if asked != 2 {
		t.Errorf("%d dry runs, want one for a pod and one for a volume", asked)
	}
	for child, count := range byChild {
		if count > 2 {
			t.Errorf("%d calls for %s", count, child)
		}
	}
}

func TestAtRestNothingIsCalledOrChanged(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 2)
	namespace := c.Namespace
	ticker := time.NewTicker(260 * time.Millisecond)
	defer ticker.Stop()
	wantAtRest(t, c, func() {
		for i := range 20 {
			<-ticker.C
			touch(t, namespace, "orders-1", i)
		}
	})
}

// quiet waits until the operator has sent nothing for a second.
func quiet(t testing.TB, namespace string) {
	t.Helper()
	last, since := -1, time.Now()
	controlplane.Eventually(t, func(context.Context) error {
		if count := len(requests(t, namespace)); count != last {
			last, since = count, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("the operator is still sending requests: %d", last)
		}
		return nil
	})
}

func TestEveryChildHasOneOwnerEntry(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 2)
	namespace := c.Namespace
	kinds := map[string]bool{}
	for _, object := range managed(t, namespace) {
		kind := fmt.Sprintf("%T", object)
		kinds[kind] = true
		var applied, updated int
		for _, entry := range object.GetManagedFields() {
			if entry.Manager != naming.FieldManager || entry.Subresource != "" {
				continue
			}
			if entry.Operation == metav1.ManagedFieldsOperationApply {
				applied++
			} else {
				updated++
			}
		}
		if applied != 1 || updated != 0 {
			t.Errorf("%s %s: %d Apply and %d Update entries of ours, want 1 and 0", kind, object.GetName(), applied, updated)
		}
	}
	if len(kinds) != 12 {
		t.Errorf("there are children of the kinds %v only", slices.Sorted(maps.Keys(kinds)))
	}
}

// TestEquivalentQuantities: a size is stored in another spelling than it was sent in where the API server prefers one, and
// sent again in the first by an operator that remembers nothing. Volume claim templates cannot be changed.
func TestEquivalentQuantities(t *testing.T) {
	t.Parallel()
	c := cluster(plane.Namespace(t), "orders", 1)
	c.Spec.Storage = "1024Gi"
	_, o := convergedAs(t, c)
	quiet(t, c.Namespace)
	for object, path := range map[string]string{
		"statefulset/orders":                  "{.spec.volumeClaimTemplates[0].spec.resources.requests.storage}",
		"persistentvolumeclaim/data-orders-0": "{.spec.resources.requests.storage}",
	} {
		if stored := plane.Kubectl(t, "get", object, "-n", c.Namespace, "-o", "jsonpath="+path); stored != "1Ti" {
			t.Errorf("%s has %s, want the spelling 1Ti", object, stored)
		}
	}
	o.stop()
	before, calls := versions(t, c.Namespace), len(requests(t, c.Namespace))
	startOperator(t, c.Namespace)
	controlplane.Eventually(t, func(context.Context) error {
		for _, call := range requests(t, c.Namespace)[calls:] {
			if call.ObjectRef.Resource == "statefulsets" && call.Verb == "patch" {
				return nil
			}
		}
		return errors.New("the StatefulSet was not applied again")
	})
	quiet(t, c.Namespace)
	for _, call := range requests(t, c.Namespace)[calls:] {
		// Only a Secret that nobody has yet may be missing; nothing may be refused.
		if call.ResponseStatus.Code >= 400 && call.ResponseStatus.Code != 404 {
			t.Errorf("%s %s %s: %d", call.Verb, call.ObjectRef.Resource, call.ObjectRef.Name, call.ResponseStatus.Code)
		}
	}
	wantUnchanged(t, c.Namespace, before)
	awaitReady(t, c)
}
