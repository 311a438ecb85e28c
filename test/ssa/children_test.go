package ssa_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/test/world"
)

// childrenOf are the objects in a namespace of all kinds of which the operator makes some.
func childrenOf(t testing.TB, namespace string) []client.Object {
	t.Helper()
	found, err := world.Children(t.Context(), plane.Client, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
