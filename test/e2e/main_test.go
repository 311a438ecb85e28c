// Package e2e proves the operator on a real Kubernetes with real PostgreSQL:
// the local cluster of test/cluster.
//
// The tests run with PGO_E2E=1 (make test-e2e). With -short only the core
// subset runs. Tests that disturb the operator or a node run alone and first;
// the others then run side by side.
package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/acme/pg-operator/test/audit"
	"github.com/acme/pg-operator/test/localcluster"
)

// setupTimeout bounds the start of the cluster and the operator's installation
// when the programs have been built before.
const setupTimeout = 10 * time.Minute

// setup is what the first test starts for all.
type setup struct {
	cluster *localcluster.Cluster
	// noSixteen says why there is no image of PostgreSQL 16, the seed manifest's version.
	noSixteen error
}

// launched is the cluster once there is one, begun the moment before that.
var (
	launched *localcluster.Cluster
	begun    = time.Now()
)

// TestMain judges what the operator and the agents did in all the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if launched != nil {
		if err := audit.Check(launched.AuditLog, begun, audit.Operator, audit.Agents); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

var start = sync.OnceValues(func() (setup, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	cluster, err := localcluster.Start(ctx)
	if err != nil {
		return setup{}, err
	}
	launched = cluster
	if err := cluster.LoadImage(ctx, "postgres-17", "no-postgres"); err != nil {
		return setup{}, err
	}
	noSixteen := cluster.LoadImage(ctx, "postgres-16")
	return setup{cluster, noSixteen}, cluster.DeployOperator(ctx)
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
	started, err := start()
	if err != nil {
		t.Fatalf("local cluster: %v", err)
	}
	return started.cluster
}

// beyondCore skips a test outside the core subset.
func beyondCore(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the core subset: run without -short")
	}
}

// seedVersion is the seed manifest's version where there is an image of it, else "17".
func seedVersion(t *testing.T) string {
	t.Helper()
	started, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if started.noSixteen != nil {
		t.Logf(`The seed manifest runs with version "17", for lack of an image of 16: %v`, started.noSixteen)
		return "17"
	}
	return "16"
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
