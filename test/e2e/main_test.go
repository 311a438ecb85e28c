// Package e2e proves the operator on a real Kubernetes with real PostgreSQL:
// the local cluster of test/cluster.
//
// The tests run with PGO_E2E=1 (make test-e2e). With -short only the core
// subset runs. Tests that disturb the operator or a node run alone and first;
// the others then run side by side.
package e2e

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/test/localcluster"
)

// setupTimeout bounds the start of the cluster and the operator's installation
// when the programs have been built before.
const setupTimeout = 10 * time.Minute

var start = sync.OnceValues(func() (*localcluster.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	cluster, err := localcluster.Start(ctx)
	if err != nil {
		return nil, err
	}
	return cluster, cluster.DeployOperator(ctx)
})

// environment is the local cluster with this checkout's operator; the first
// caller starts it. The test is skipped when end-to-end tests were not asked
// for or cannot run here.
func environment(t *testing.T) *localcluster.Cluster {
	t.Helper()
	if os.Getenv("PGO_E2E") == "" {
		t.Skip("end-to-end tests run on the local cluster: make test-e2e, or set PGO_E2E=1")
	}
	if reason := localcluster.Unavailable(); reason != "" {
		t.Skip("end-to-end tests cannot run here: " + reason)
	}
	cluster, err := start()
	if err != nil {
		t.Fatalf("local cluster: %v", err)
	}
	return cluster
}

// beyondCore skips a test outside the core subset.
func beyondCore(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the core subset: run without -short")
	}
}

// seedVersion is the seed manifest's version where the nodes have its image, else "17".
func seedVersion(t *testing.T, cluster *localcluster.Cluster) string {
	t.Helper()
	var nodes corev1.NodeList
	if err := cluster.Client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		for _, image := range node.Status.Images {
			if slices.Contains(image.Names, "docker.io/library/postgres:16") {
				return "16"
			}
		}
	}
	t.Log(`No image of PostgreSQL 16 on the nodes: the seed manifest runs with version "17"`)
	return "17"
}

// eventually waits and fails the test at the deadline with what was last seen.
func eventually(t *testing.T, timeout time.Duration, what string, probe localcluster.Probe) time.Duration {
	t.Helper()
	elapsed, err := localcluster.Wait(t.Context(), timeout, what, probe)
	if err != nil {
		t.Fatal(err)
	}
	return elapsed
}
