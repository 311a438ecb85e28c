package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/localcluster"
)

// TestOperatorRoll restarts every process of the operator while objects are
// admitted without a pause: none is refused. It runs alone.
func TestOperatorRoll(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	namespace := cluster.Namespace(t, "roll")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		took    []time.Duration
	)
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				probe := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"}}
				begun := time.Now()
				// What was begun is finished.
				if err := cluster.Client.Create(context.WithoutCancel(ctx), probe, client.DryRunAll); err != nil {
					t.Errorf("admission failed during the roll: %v", err)
				} else if probe.Spec.Version == "" {
					t.Error("an omitted spec.version was not filled in during the roll")
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	deployment := []string{"deployment/" + localcluster.OperatorDeployment, "-n", localcluster.OperatorNamespace}
	for _, command := range [][]string{
		append([]string{"rollout", "restart"}, deployment...),
		append([]string{"rollout", "status", "--timeout=3m"}, deployment...),
		append([]string{"wait", "--for=delete", "pod", "-n", localcluster.OperatorNamespace, "--timeout=2m"}, terminating(t, cluster)...),
	} {
		if _, err := cluster.Kubectl(t.Context(), command...); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	workers.Wait()
	slices.Sort(took)
	t.Logf("%d admissions, the slowest took %s, half took %s or less", len(took),
		took[len(took)-1].Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond))
}

// terminating names the operator's pods of before the roll.
func terminating(t *testing.T, cluster *localcluster.Cluster) []string {
	t.Helper()
	names, err := cluster.Kubectl(t.Context(), "get", "pods", "-n", localcluster.OperatorNamespace,
		"-o", "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(names)
}
