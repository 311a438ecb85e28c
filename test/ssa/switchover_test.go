package ssa_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/controlplane"
)

func awaitPrimary(t *testing.T, c *v1alpha1.PostgresCluster, instance string) {
	t.Helper()
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err == nil && live.Status.Primary != instance {
			err = fmt.Errorf("the primary is %q", live.Status.Primary)
		}
		return err
	})
}

// agentsConfig is what the agents are told.
func agentsConfig(t *testing.T, c *v1alpha1.PostgresCluster) (config contract.Config) {
	t.Helper()
	object, err := get(t.Context(), c.Namespace, naming.Cluster(c.Name).ConfigMap(), &corev1.ConfigMap{})
	if err == nil {
		err = json.Unmarshal([]byte(object.Data[naming.ConfigMapKey]), &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// asks is what a user does to have another primary.
func asks(t *testing.T, c *v1alpha1.PostgresCluster, request string) {
	t.Helper()
	plane.Kubectl(t, "annotate", "pgc", c.Name, "-n", c.Namespace, "--overwrite", naming.AnnotationSwitchover+"="+request)
}

func awaitSwitchover(
	t *testing.T, c *v1alpha1.PostgresCluster, request string, state v1alpha1.SwitchoverState, says string,
) {
	t.Helper()
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if got := live.Status.Switchover; err == nil && (got == nil || got.Request != request || got.State != state ||
			!strings.Contains(got.Message, says)) {
			err = fmt.Errorf("the switchover is %+v", got)
		}
		return err
	})
}

// TestSwitchover asks for other primaries, as users do.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	c, w, o := converged(t, 3)
	uids := podUIDs(t, c)
	asks(t, c, "orders-2")
	awaitSwitchover(t, c, "orders-2", v1alpha1.SwitchoverDone, "")
	awaitPrimary(t, c, "orders-2")
	awaitReady(t, c)
	quiet(t, c.Namespace)

	// Another operator remembers what was done.
	o.stop()
	startOperator(t, c.Namespace)
	asks(t, c, "any@1")
	awaitSwitchover(t, c, "any@1", v1alpha1.SwitchoverDone, "")
	awaitPrimary(t, c, "orders-0")
	asks(t, c, "any@2")
	awaitSwitchover(t, c, "any@2", v1alpha1.SwitchoverDone, "")
	awaitPrimary(t, c, "orders-1")

	// What cannot be done now is done once it can.
	w.With(func() {
		w.Reports["orders-2"] = func(r *contract.Report) { r.State = contract.StateNotStreaming }
	})
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		known := func(i v1alpha1.InstanceStatus) bool {
			return i.Name == "orders-2" && i.State == string(contract.StateNotStreaming)
		}
		if err == nil && !slices.ContainsFunc(live.Status.Instances, known) {
			err = fmt.Errorf("the instances are %+v", live.Status.Instances)
		}
		return err
	})
	asks(t, c, "orders-2")
	awaitSwitchover(t, c, "orders-2", v1alpha1.SwitchoverWaiting, "orders-2 does not stream")
	w.With(func() { clear(w.Reports); w.Stubborn = true })
	awaitSwitchover(t, c, "orders-2", v1alpha1.SwitchoverRunning, "")
	awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSwitchingOver)
	controlplane.Eventually(t, func(context.Context) error {
		orders := agentsConfig(t, c).Orders
		if want := (contract.Order{
			ID: "switchover-orders-1-orders-2-4", Instance: "orders-1", Kind: contract.OrderSwitchover, Target: "orders-2", Term: 4,
		}); !slices.Equal(orders, []contract.Order{want}) {
			return fmt.Errorf("orders %+v", orders)
		}
		return nil
	})
	w.With(func() {
		w.Reports["orders-1"] = func(r *contract.Report) { r.OrderProblem = "orders-2 lacks 3 GB of the log" }
	})
	awaitSwitchover(t, c, "orders-2", v1alpha1.SwitchoverRunning, "orders-2 lacks 3 GB")
	asks(t, c, "orders-1@stay")
	awaitSwitchover(t, c, "orders-1@stay", v1alpha1.SwitchoverDone, "already")
	plane.Kubectl(t, "annotate", "pgc", c.Name, "-n", c.Namespace, naming.AnnotationSwitchover+"-")
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err == nil && (live.Status.Switchover != nil || live.Status.Primary != "orders-1") {
			err = fmt.Errorf("the switchover is %+v, the primary %s", live.Status.Switchover, live.Status.Primary)
		}
		return err
	})
	awaitReady(t, c)
	if now := podUIDs(t, c); len(now) != len(uids) {
		t.Errorf("pods %v, before %v", now, uids)
	}
	for name, uid := range podUIDs(t, c) {
		if uids[name] != uid {
			t.Errorf("pod %s was replaced", name)
		}
	}
}

// TestRollHandsOverFirst: every pod is made anew, the first primary's as a replica's.
func TestRollHandsOverFirst(t *testing.T) {
	t.Parallel()
	c, w, _ := converged(t, 3)
	before := podUIDs(t, c)
	var led []string
	w.With(func() {
		for name := range before {
			w.Reports[name] = func(r *contract.Report) {
				if r.Role == contract.RolePrimary && !slices.Contains(led, r.Incarnation) {
					led = append(led, r.Incarnation)
				}
			}
		}
	})
	edit(t, c, func() {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("300Mi")}
	})
	awaitReady(t, c)
	awaitPrimary(t, c, "orders-1")
	after := podUIDs(t, c)
	for name, uid := range before {
		if after[name] == uid {
			t.Errorf("pod %s is the old one", name)
		}
	}
	w.With(func() {
		if want := []string{string(before["orders-0"]), string(after["orders-1"])}; !slices.Equal(led, want) {
			t.Errorf("primaries were %v, want %v", led, want)
		}
	})
	if over := mustGet(t, c).Status.HandOver; over == nil || over.State != v1alpha1.SwitchoverDone || over.From != "orders-0" {
		t.Errorf("the hand-over is %+v", over)
	}
}

func mustGet(t *testing.T, c *v1alpha1.PostgresCluster) *v1alpha1.PostgresCluster {
	t.Helper()
	live, err := get(t.Context(), c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
	if err != nil {
		t.Fatal(err)
	}
	return live
}
