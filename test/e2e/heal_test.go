package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
)

// TestHeal removes parts of a running database under load and wants them back,
// with every acknowledged write.
func TestHeal(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	d := newDatabase(t, cluster, "heal", replicas(2))
	d.awaitReady(readyTimeout)
	l := d.write()

	d.replacePod(1)
	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, 30*time.Second)

	d.replacePod(d.mustPrimary())
	d.awaitWrites(l, time.Minute)
	d.awaitReady(readyTimeout)
	if d.mustPrimary() == 0 {
		t.Error("the replica did not take over from a primary whose pod was deleted")
	}
	d.awaitStreaming(1, 30*time.Second)

	pods, set := d.podUIDs(2), d.statefulSet()
	if err := cluster.Client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "a new StatefulSet", func(ctx context.Context) (bool, string) {
		live := set.DeepCopy()
		if err := cluster.Client.Get(ctx, d.key(set.Name), live); err != nil {
			return false, err.Error()
		}
		return live.UID != set.UID, "still " + string(live.UID)
	})
	d.awaitReady(readyTimeout)
	d.awaitWrites(l, time.Minute)
	d.awaitStreaming(1, 30*time.Second)
	if slices.Equal(pods, d.podUIDs(2)) {
		t.Log("The pods outlived their StatefulSet")
	}
	d.verify(l)
}

// replacePod deletes a pod and waits until another of the name exists.
func (d *database) replacePod(ordinal int32) {
	d.t.Helper()
	pod := d.pod(ordinal)
	if err := d.cluster.Client.Delete(d.t.Context(), pod); err != nil {
		d.t.Fatal(err)
	}
	d.awaitNewPod(ordinal, pod.UID)
}

func (d *database) awaitNewPod(ordinal int32, old types.UID) {
	d.t.Helper()
	eventually(d.t, readyTimeout, "a new pod "+d.Instance(ordinal), func(ctx context.Context) (bool, string) {
		pod := &corev1.Pod{}
		if err := d.cluster.Client.Get(ctx, d.key(d.Instance(ordinal)), pod); err != nil {
			return false, err.Error()
		}
		return pod.UID != old, "the old pod is there"
	})
}

// TestWipedReplica empties a replica's volume and wants a new copy in it.
func TestWipedReplica(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "wiped", replicas(2))
	d.awaitReady(readyTimeout)
	d.execSQL("create table kept as select generate_series(1, 100) as id")
	id := d.object().Status.SystemID
	d.wipe(1)
	d.replacePod(1)
	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, 30*time.Second)
	if got := d.mustAsk(1, "select system_identifier from pg_control_system()"); got != id {
		t.Errorf("the copy has system identifier %s, want %s", got, id)
	}
	d.awaitRows(d.ServiceReadOnly(), "kept", 100)
}

// TestWipedPrimary empties the primary's volume: the replica takes over, and
// no new database may be made in the volume.
func TestWipedPrimary(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "lost", replicas(2))
	d.awaitReady(readyTimeout)
	d.execSQL("create table kept as select generate_series(1, 100) as id")
	d.awaitRows(d.ServiceReadOnly(), "kept", 100)
	id := d.object().Status.SystemID
	d.wipe(0)
	d.replacePod(0)

	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, 30*time.Second)
	if got := d.mustPrimary(); got != 1 {
		t.Errorf("%s is the primary", d.Instance(got))
	}
	for ordinal := range int32(2) {
		if got := d.mustAsk(ordinal, "select system_identifier from pg_control_system()"); got != id {
			t.Errorf("%s has system identifier %s, want %s", d.Instance(ordinal), got, id)
		}
	}
	if got := d.object().Status.SystemID; got != id {
		t.Errorf("status.systemID is %q, want %q", got, id)
	}
	d.awaitRows(d.ServiceReadWrite(), "kept", 100)
	d.awaitRows(d.ServiceReadOnly(), "kept", 100)
}

// wipe removes everything in an instance's PGDATA.
func (d *database) wipe(ordinal int32) {
	d.t.Helper()
	_, err := d.exec(d.t.Context(), ordinal, "sh", "-c", "rm -rf "+naming.PathPGData+"/* "+naming.PathPGData+"/.[!.]*")
	if err != nil {
		// The container may end, as its database does, before the shell has answered.
		d.t.Logf("wipe %s: %v", d.Instance(ordinal), err)
	}
}

// TestScale goes 1 -> 3 -> 2 -> 3 with kubectl scale.
func TestScale(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	d := newDatabase(t, cluster, "scale", nil)
	d.awaitReady(readyTimeout)
	l := d.write()

	d.kubectl("scale", "pgc", string(d.Cluster), "--replicas=3")
	d.awaitReady(readyTimeout)
	d.awaitStreaming(2, 30*time.Second)
	d.awaitSlots(2)
	claim := d.claim(2)

	d.kubectl("scale", "pgc", string(d.Cluster), "--replicas=2")
	d.awaitReady(readyTimeout)
	eventually(t, time.Minute, "two pods", func(ctx context.Context) (bool, string) {
		pods := &corev1.PodList{}
		err := cluster.Client.List(ctx, pods, client.InNamespace(d.namespace), client.MatchingLabels(d.SelectorLabels()))
		return err == nil && len(pods.Items) == 2, fmt.Sprintf("%d pods, %v", len(pods.Items), err)
	})
	d.awaitStreaming(1, 30*time.Second)
	d.awaitSlots(1)
	if kept := d.claim(2); kept.UID != claim.UID || kept.DeletionTimestamp != nil {
		t.Errorf("the volume of the removed instance is not kept: %v", kept.ObjectMeta)
	}

	d.kubectl("scale", "pgc", string(d.Cluster), "--replicas=3")
	d.awaitReady(readyTimeout)
	d.awaitStreaming(2, 30*time.Second)
	d.awaitSlots(2)
	if kept := d.claim(2); kept.UID != claim.UID {
		t.Errorf("the returned instance has another volume")
	}
	d.awaitWrites(l, 15*time.Second)
	d.verify(l)
}

// awaitSlots waits until the primary keeps so many replication slots.
func (d *database) awaitSlots(want int) {
	d.t.Helper()
	eventually(d.t, 30*time.Second, fmt.Sprintf("%d replication slots", want), func(ctx context.Context) (bool, string) {
		slots, err := d.askPrimary(ctx, "select count(*), string_agg(slot_name, ' ') from pg_replication_slots")
		if err != nil {
			return false, err.Error()
		}
		var count int
		_, _ = fmt.Sscanf(slots, "%d|", &count)
		return count == want, slots
	})
}
