package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	firstNode  = "n1"
	secondNode = "n2"
)

// TestNodes spreads a database over two nodes and cuts one off. It runs alone:
// the cut node may carry pods of others.
func TestNodes(t *testing.T) {
	cluster := environment(t)
	if err := cluster.AddNode(t.Context(), secondNode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.HealNode(ctx, secondNode); err != nil {
			t.Errorf("heal the node: %v", err)
		}
		if _, err := cluster.Kubectl(ctx, "uncordon", secondNode); err != nil {
			t.Errorf("uncordon the node: %v", err)
		}
	})
	// The primary's volume binds it to the first node, which stays.
	if _, err := cluster.Kubectl(t.Context(), "cordon", secondNode); err != nil {
		t.Fatal(err)
	}
	d := newDatabase(t, cluster, "spread", nil)
	d.awaitReady(readyTimeout)
	if _, err := cluster.Kubectl(t.Context(), "uncordon", secondNode); err != nil {
		t.Fatal(err)
	}
	d.kubectl("scale", "pgc", string(d.Cluster), "--replicas=2")
	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, 30*time.Second)
	if nodes := fmt.Sprint(d.pod(0).Spec.NodeName, " ", d.pod(1).Spec.NodeName); nodes != firstNode+" "+secondNode {
		t.Fatalf("the instances are on %s, want one on each node", nodes)
	}

	l := d.write()
	if err := cluster.CutNode(t.Context(), secondNode); err != nil {
		t.Fatal(err)
	}
	d.awaitStreaming(0, 30*time.Second)
	d.awaitWrites(l, 15*time.Second) // an asynchronous replica's loss must not stop the primary
	if err := cluster.HealNode(t.Context(), secondNode); err != nil {
		t.Fatal(err)
	}
	d.awaitStreaming(1, readyTimeout)
	eventually(t, readyTimeout, secondNode+" is ready", func(ctx context.Context) (bool, string) {
		node := &corev1.Node{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: secondNode}, node); err != nil {
			return false, err.Error()
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, condition.Message
			}
		}
		return false, "no condition Ready"
	})
	d.awaitReady(readyTimeout)
	d.verify(l)
}
