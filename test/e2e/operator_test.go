package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/test/localcluster"
)

// TestWithoutOperator stops, then removes and re-installs the operator: the
// databases must not notice, and one that is deleted goes. It runs alone.
func TestWithoutOperator(t *testing.T) {
	cluster := environment(t)
	db, orphan := newDatabase(t, cluster, "alone", replicas(2)), newDatabase(t, cluster, "orphan", nil)
	db.awaitReady(readyTimeout)
	orphan.awaitReady(readyTimeout)
	l := db.write()
	processes, err := cluster.OperatorReplicas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		if err := cluster.DeployOperator(ctx); err != nil {
			t.Errorf("bring the operator back: %v", err)
		}
	})

	t.Run("stopped", func(t *testing.T) {
		d := db.in(t)
		if err := cluster.ScaleOperator(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		// No finalizer of ours holds a cluster back.
		o := orphan.in(t)
		o.kubectl("delete", "pgc", string(o.Cluster), "--cascade=foreground", "--wait=false")
		d.replacePod(1)
		d.awaitStreaming(1, readyTimeout)
		d.replacePod(d.mustPrimary())
		d.awaitWrites(l, readyTimeout)
		d.awaitStreaming(1, time.Minute)
		o.awaitGone()
		if err := cluster.ScaleOperator(t.Context(), processes); err != nil {
			t.Fatal(err)
		}
		d.awaitReady(readyTimeout)
	})

	t.Run("re-installed", func(t *testing.T) {
		d := db.in(t)
		before := d.podsAndRestarts(2)
		if err := cluster.UninstallOperator(t.Context()); err != nil {
			t.Fatal(err)
		}
		var namespace corev1.Namespace
		err := cluster.Client.Get(t.Context(), client.ObjectKey{Name: localcluster.OperatorNamespace}, &namespace)
		if !apierrors.IsNotFound(err) {
			t.Fatalf("the operator's namespace after the removal: %v", err)
		}
		if got := d.podsAndRestarts(2); got != before {
			t.Fatalf("the removal touched the database: pods %s, before %s", got, before)
		}
		d.awaitWrites(l, 15*time.Second)
		if err := cluster.DeployOperator(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A change of the spec, seen in the status, proves that the new operator is at work.
		d.mustPatchSpec(map[string]any{"parameters": map[string]string{"work_mem": "5MB"}})
		d.awaitReady(readyTimeout)
		d.awaitSetting(0, "work_mem", "5MB")
		if got := d.podsAndRestarts(2); got != before {
			t.Errorf("the installation touched the database: pods %s, before %s", got, before)
		}
	})
	db.awaitWrites(l, 15*time.Second)
	db.verify(l)
}

// in is the same database under another test's control.
func (d *database) in(t *testing.T) *database {
	sub := *d
	sub.t = t
	return &sub
}

// podsAndRestarts shows which pods run the first n instances and how often their containers started.
func (d *database) podsAndRestarts(n int32) string {
	d.t.Helper()
	text := ""
	for ordinal := range n {
		pod := d.pod(ordinal)
		text += fmt.Sprintf("%s %s", pod.Name, pod.UID)
		for _, status := range pod.Status.ContainerStatuses {
			text += fmt.Sprintf(" %s:%d", status.Name, status.RestartCount)
		}
		text += "; "
	}
	return text
}
