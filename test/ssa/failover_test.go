package ssa_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/controlplane"
)

// failovers is the metric of the failovers of a cause.
func failovers(t testing.TB, cause string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "pg_operator_failovers_total" && metric.GetLabel()[0].GetValue() == cause {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestFailoverIsExplained goes through one as agents report it, with an operator that is away for a part of it.
func TestFailoverIsExplained(t *testing.T) {
	t.Parallel()
	c, w, operator := converged(t, 3)
	counted := failovers(t, contract.CausePrimarySilent)
	w.With(func() {
		w.Broken["orders-0"] = true
		w.Reports["orders-1"] = func(r *contract.Report) {
			r.State, r.Waiting, r.Message = contract.StateNotStreaming, contract.WaitingForQuorum, "orders-2 does not answer"
		}
	})
	condition := awaitCondition(t, c, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonWaitingForQuorum)
	if !strings.Contains(condition.Message, "orders-2 does not answer") {
		t.Error(condition.Message)
	}
	operator.stop()

	promoted := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	w.With(func() {
		w.Broken["orders-0"] = false
		w.Reports["orders-0"] = func(r *contract.Report) { r.Role, r.Term = contract.RoleReplica, 2 }
		w.Reports["orders-1"] = func(r *contract.Report) {
			r.Role, r.Term = contract.RolePrimary, 2
			r.Synchronous = &contract.Quorum{Number: 1, Standbys: []string{"orders-0", "orders-2"}}
			r.LastFailover = &contract.Failover{
				From: "orders-0", To: "orders-1", Cause: contract.CausePrimarySilent + ": nothing was heard of orders-0 for 1.5 s",
				Term: 2, Detected: promoted.Add(-1400 * time.Millisecond), Promoted: promoted, LostBytes: new(int64(0)),
			}
		}
	})
	operator = startOperator(t, c.Namespace)
	awaitReady(t, c)
	live, err := get(t.Context(), c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
	if err != nil {
		t.Fatal(err)
	}
	last := live.Status.LastFailover
	if last == nil || last.From != "orders-0" || last.To != "orders-1" || last.Term != 2 || *last.LostBytes != 0 ||
		!last.PromotedTime.Equal(&metav1.MicroTime{Time: promoted}) {
		t.Errorf("the status has %+v", last)
	}
	if quorum := live.Status.Synchronous; quorum == nil || quorum.Number != 1 || strings.Join(quorum.Standbys, " ") != "orders-0 orders-2" {
		t.Errorf("commits wait for %+v", quorum)
	}
	told := func() string {
		return plane.Kubectl(t, "get", "events", "-n", c.Namespace, "--field-selector", "reason=FailedOver", "--no-headers")
	}
	controlplane.Eventually(t, func(context.Context) error {
		if text := told(); !strings.Contains(text, "Warning") || !strings.Contains(text, "orders-1 took over from orders-0 in 1.4 s") {
			return fmt.Errorf("events %q", text)
		}
		return nil
	})
	operator.stop()
	startOperator(t, c.Namespace)
	w.With(func() { w.Reports["orders-2"] = func(r *contract.Report) { r.Term = 2 } })
	edit(t, c, func() { c.Spec.Parameters = map[string]string{"work_mem": "8MB"} })
	awaitReady(t, c)
	if text := told(); strings.Count(text, "\n") != 1 || strings.Contains(text, "(x") {
		t.Errorf("it is told of more than once: %s", text)
	}
	if count := failovers(t, contract.CausePrimarySilent) - counted; count != 1 {
		t.Errorf("the metric counts %v failovers, want 1", count)
	}
}

// TestAvailabilityChangesNoPod: agents are told of it, and go on.
func TestAvailabilityChangesNoPod(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 3)
	before := podUIDs(t, c)
	edit(t, c, func() {
		c.Spec.Synchronous = &v1alpha1.SynchronousReplication{Mode: v1alpha1.SynchronousModeQuorum, Number: new(int32(2))}
		c.Spec.Failover = &v1alpha1.Failover{Enabled: new(false), LeaseDuration: "20s", Suspicion: "3s", MaxLag: "1Mi"}
	})
	awaitReady(t, c)
	config, object := contract.Config{}, &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: c.Namespace, Name: naming.Cluster(c.Name).ConfigMap()}
	if err := plane.Client.Get(t.Context(), key, object); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(object.Data[naming.ConfigMapKey]), &config); err != nil {
		t.Fatal(err)
	}
	if config.Synchronous == nil || *config.Synchronous != (contract.Synchronous{Number: 2, Required: true}) || config.FailoverEnabled ||
		config.LeaseDurationSeconds != 20 || config.SuspicionMillis != 3000 || config.MaxLagBytes != 1<<20 {
		t.Errorf("agents are told %+v", config)
	}
	for name, uid := range podUIDs(t, c) {
		if before[name] != uid {
			t.Errorf("pod %s was made anew", name)
		}
	}
}
