// Package chaos breaks databases on the local cluster in all ways that this
// machine can, one at a time, while clients write, and judges what the clients
// were told (package history) and what was seen from the side (package watch).
//
// TestShort is part of make test-e2e (PGO_E2E=1), TestFaults is make test-chaos
// (PGO_CHAOS=1). A run is given by a seed; one that fails says how to run it again.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acme/pg-operator/test/audit"
	"github.com/acme/pg-operator/test/chaos/table"
	"github.com/acme/pg-operator/test/localcluster"
)

var (
	seed      = flag.Uint64("seed", 1, "seed of the load, of the order of faults and of what they hit")
	only      = flag.String("faults", "", "names of faults, separated by commas; all when empty")
	instances = flag.String("instances", "3,2,1", "numbers of instances of TestFaults")
	modes     = flag.String("modes", "async,required", "modes of TestFaults: async, required")
	rounds    = flag.Int("rounds", 1, "how often TestFaults runs each fault")
	report    = flag.String("report", "", "file for the table")
)

// setupTimeout bounds the start of the cluster and the operator's installation when the programs have been built before.
const setupTimeout = 10 * time.Minute

// launched is the cluster once there is one, begun the moment before that.
var (
	launched *localcluster.Cluster
	begun    = time.Now()
)

// TestMain judges what the operator and the agents did in all the tests.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if launched != nil {
		if err := audit.Check(launched.AuditLog, begun, audit.Operator, audit.Agents); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// start is the local cluster with this checkout's operator; the first caller starts it.
var start = sync.OnceValues(func() (*localcluster.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	cluster, err := localcluster.Start(ctx)
	if err != nil {
		return nil, err
	}
	launched = cluster
	if err := cluster.LoadImage(ctx, "postgres-17"); err != nil {
		return nil, err
	}
	return cluster, cluster.DeployOperator(ctx)
})

// environment skips the test unless the variable asks for it and it can run here.
func environment(t *testing.T, variable string) *localcluster.Cluster {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("runs on the local cluster when %s is set", variable)
	}
	if reason := localcluster.Unavailable(); reason != "" {
		t.Skip("cannot run here: " + reason)
	}
	cluster, err := start()
	if err != nil {
		t.Fatalf("local cluster: %v", err)
	}
	return cluster
}

// TestShort runs two faults that need no nodes of their own. Planned moves have an end-to-end test of their own.
func TestShort(t *testing.T) {
	cluster := environment(t, "PGO_E2E")
	var runs []table.Run
	t.Cleanup(func() { publish(t, runs) })
	s := suite{cluster: cluster, instances: 3, mode: modeRequired}
	s.run(t, choose(t, "kill-postmaster,delete-pod"), &runs)
}

// TestFaults runs all faults with all numbers of instances in all modes, spread over three nodes. The first node
// carries the operator, and none of the instances: the clients' way through -rw is its kube-proxy's.
func TestFaults(t *testing.T) {
	cluster := environment(t, "PGO_CHAOS")
	nodes := []string{"n2", "n3", "n4"}
	for _, node := range nodes {
		if err := cluster.AddNode(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t.Context(), t, cluster, append([]string{"uncordon"}, nodes...)...)
	// Other tests know of two nodes.
	t.Cleanup(func() { kubectl(context.Background(), t, cluster, append([]string{"cordon"}, nodes[1:]...)...) })
	var runs []table.Run
	t.Cleanup(func() { publish(t, runs) })
	for number := range strings.SplitSeq(*instances, ",") {
		for mode := range strings.SplitSeq(*modes, ",") {
			s := suite{cluster: cluster, nodes: nodes, mode: mode}
			if _, err := fmt.Sscan(number, &s.instances); err != nil {
				t.Fatalf("-instances %s: %v", *instances, err)
			}
			if s.mode == modeRequired && s.instances < 2 {
				continue
			}
			t.Run(s.name(), func(t *testing.T) {
				s.run(t, shuffled(choose(t, *only)), &runs)
			})
		}
	}
}

func kubectl(ctx context.Context, t *testing.T, cluster *localcluster.Cluster, args ...string) {
	t.Helper()
	if _, err := cluster.Kubectl(ctx, args...); err != nil {
		t.Error(err)
	}
}

// choose finds faults by their names.
func choose(t *testing.T, names string) []fault {
	t.Helper()
	if names == "" {
		return slices.Clone(faults)
	}
	var chosen []fault
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("there is no fault %q", name)
		}
		chosen = append(chosen, faults[i])
	}
	return chosen
}

// shuffled repeats the faults as often as asked for, in the order of the seed.
func shuffled(chosen []fault) []fault {
	random := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // It need not be secret.
	var all []fault
	for range *rounds {
		random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		all = append(all, chosen...)
	}
	return all
}

// publish prints the table, with how busy the machine is, and writes it into the file that was asked for.
func publish(t *testing.T, runs []table.Run) {
	load, _ := os.ReadFile("/proc/loadavg")
	var text strings.Builder
	fmt.Fprintf(&text, "Seed %d, load average %s", *seed, load)
	if err := table.Write(&text, runs); err != nil {
		t.Error(err)
	}
	t.Logf("%s", text.String())
	if *report == "" {
		return
	}
	if err := os.WriteFile(*report, []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}
