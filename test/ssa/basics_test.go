package ssa_test

import (
	"testing"
)

func TestConverges(t *testing.T) {
	namespace := plane.Namespace(t)
	startWorld(t, namespace)
	startOperator(t, namespace)
	c := cluster(namespace, "orders", 3)
	create(t, c)
	awaitReady(t, c)
	t.Log(plane.Kubectl(t, "get", "pgc", "-n", namespace, "-o", "wide"))
}
