package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/ledger"
)

// TestSwitchover moves the primary under load in all planned ways: because a user asks, because its pod is to be made anew,
// because its node is drained, because it is to be removed. Nothing that was acknowledged is lost.
func TestSwitchover(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	d := newDatabase(t, cluster, "moved", replicas(3))
	d.awaitReady(readyTimeout)
	d.awaitStreaming(2, 30*time.Second)

	d.during("a switchover", func() {
		d.kubectl("annotate", "pgc", string(d.Cluster), naming.AnnotationSwitchover+"="+d.Instance(1))
		d.awaitMove(1)
	})
	if made := d.object().Status.Switchover; made == nil || made.State != v1alpha1.SwitchoverDone {
		t.Errorf("the switchover is %+v", made)
	}

	// The order of the pods' ends is told by the events; that the primary's came last and as a replica's, by where it is now.
	pods := d.podUIDs(3)
	d.during("a roll of all pods", func() {
		d.mustPatchSpec(map[string]any{"resources": map[string]any{"requests": map[string]any{"memory": "65Mi"}}})
		d.awaitMove(0)
	})
	for ordinal, uid := range d.podUIDs(3) {
		if uid == pods[ordinal] {
			t.Errorf("pod %d is the old one", ordinal)
		}
	}
	if over := d.object().Status.HandOver; over == nil || over.State != v1alpha1.SwitchoverDone || over.From != d.Instance(1) {
		t.Errorf("the hand-over is %+v", over)
	}

	d.during("an eviction of the primary", func() {
		d.replacePod(0)
		eventually(t, time.Minute, "another primary", func(ctx context.Context) (bool, string) {
			ordinal, err := d.primary(ctx)
			return err == nil && ordinal != 0, fmt.Sprintf("instance %d, %v", ordinal, err)
		})
	})
	term := d.term()
	d.during("a switchover to the last instance", func() {
		d.kubectl("annotate", "pgc", string(d.Cluster), "--overwrite", naming.AnnotationSwitchover+"="+d.Instance(2)+"@1")
		d.awaitMove(2)
	})
	d.during("its removal", func() {
		d.kubectl("scale", "pgc", string(d.Cluster), "--replicas=2")
		d.awaitMove(0)
	})
	if now := d.term(); now <= term {
		t.Errorf("the -rw EndpointSlice has term %d, and had %d", now, term)
	}
	set := &appsv1.StatefulSet{}
	d.get(string(d.Cluster), set)
	if *set.Spec.Replicas != 2 {
		t.Errorf("%d instances", *set.Spec.Replicas)
	}
}

// during has a database written to while something is done to it, until it is ready again.
func (d *database) during(what string, do func()) {
	d.t.Helper()
	d.execSQL("drop table if exists ledger")
	l := d.write()
	d.awaitWrites(l, time.Minute)
	do()
	d.awaitReady(readyTimeout)
	d.awaitWrites(l, time.Minute)
	d.verify(l)
	report(d.t, what, l)
}

func report(t *testing.T, what string, l *ledger.Ledger) {
	t.Helper()
	t.Logf("%s: no write for %s", what, l.LongestGap().Round(10*time.Millisecond))
}

// awaitMove waits until an instance is the primary.
func (d *database) awaitMove(ordinal int32) {
	d.t.Helper()
	eventually(d.t, 3*time.Minute, fmt.Sprintf("instance %d is the primary", ordinal), func(ctx context.Context) (bool, string) {
		live := &v1alpha1.PostgresCluster{}
		if err := d.cluster.Client.Get(ctx, d.key(string(d.Cluster)), live); err != nil {
			return false, err.Error()
		}
		return live.Status.Primary == d.Instance(ordinal),
			fmt.Sprintf("%s is; %+v, %+v", live.Status.Primary, live.Status.Switchover, live.Status.HandOver)
	})
}

// term is the one of who last led the -rw Service.
func (d *database) term() int {
	d.t.Helper()
	slice := &discoveryv1.EndpointSlice{}
	d.get(d.EndpointSlice(), slice)
	term, err := strconv.Atoi(slice.Annotations[naming.AnnotationTerm])
	if err != nil {
		d.t.Fatal(err)
	}
	return term
}
