package ssa_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/acme/pg-operator/test/operator"
	"github.com/acme/pg-operator/test/world"
)

// TestRestartServesEditsFirst edits one of several clusters while no operator runs: the next operator begins with it,
// and what it does to the others changes nothing.
func TestRestartServesEditsFirst(t *testing.T) {
	t.Parallel()
	const clusters, edited = 8, "db-5"
	namespace := plane.Namespace(t)
	world.Start(t, plane, namespace)
	o := startOperator(t, namespace)
	for i := range clusters {
		create(t, cluster(namespace, fmt.Sprintf("db-%d", i), 1))
	}
	for i := range clusters {
		awaitReady(t, cluster(namespace, fmt.Sprintf("db-%d", i), 1))
	}
	quiet(t, namespace)
	o.stop()

	c := cluster(namespace, edited, 1)
	edit(t, c, func() { c.Spec.Storage = "30Gi" })
	before, calls := versions(t, namespace), len(requests(t, namespace))
	options := operator.Options()
	options.MaxConcurrentReconciles = 1
	operator.Start(t, plane, namespace, options, func(*rest.Config, *ctrl.Options) {})
	awaitReady(t, c)
	quiet(t, namespace)
	var order []string
	for _, call := range requests(t, namespace)[calls:] {
		// Every child's name begins with its cluster's.
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(call.ObjectRef.Name, "data-"), "db-"), "-")
		if call.Verb == "patch" && !slices.Contains(order, "db-"+name) {
			order = append(order, "db-"+name)
		}
	}
	if len(order) != clusters || order[0] != edited {
		t.Errorf("the clusters were served in the order %v, want %s first of %d", order, edited, clusters)
	}
	wantUnchanged(t, namespace, before, edited)
}
