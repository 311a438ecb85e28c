package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestGrow doubles the volumes of a running database; no pod restarts.
func TestGrow(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	d := newDatabase(t, cluster, "grow", replicas(2))
	d.awaitReady(readyTimeout)
	l := d.write()
	set, pods := d.statefulSet().UID, d.podUIDs(2)

	d.mustPatchSpec(map[string]any{"storage": "2Gi"})
	d.awaitReady(readyTimeout)
	for ordinal := range int32(2) {
		capacity := d.claim(ordinal).Status.Capacity[corev1.ResourceStorage]
		if capacity.String() != "2Gi" {
			t.Errorf("capacity of %s is %s, want 2Gi", d.PVC(ordinal), capacity.String())
		}
		if size := d.fileSystemMiB(ordinal); size < 1900 || size > 2048 {
			t.Errorf("the file system of %s has %d MiB, want about 2048", d.Instance(ordinal), size)
		}
	}
	if got := d.object().Status.ProvisionedStorage; got != "2Gi" {
		t.Errorf("status.provisionedStorage is %s, want 2Gi", got)
	}
	if d.statefulSet().UID == set {
		t.Error("the StatefulSet was not re-created, so its volume claim template cannot have grown")
	}
	if got := d.podUIDs(2); !slices.Equal(got, pods) {
		t.Errorf("pods %v, want the same as before: %v", got, pods)
	}
	if err := d.patchSpec(map[string]any{"storage": "1Gi"}); err == nil || !strings.Contains(err.Error(), "spec.storage") {
		t.Errorf("shrinking is answered with %v, want an error about spec.storage", err)
	}
	d.awaitWrites(l, 15*time.Second)
	d.verify(l)
}

// fileSystemMiB is the size of an instance's data volume as the pod sees it.
func (d *database) fileSystemMiB(ordinal int32) int {
	d.t.Helper()
	text, err := d.exec(d.t.Context(), ordinal, "df", "-BM", "--output=size", naming.PathData)
	if err != nil {
		d.t.Fatal(err)
	}
	fields := strings.Fields(text)
	size, err := strconv.Atoi(strings.TrimSuffix(fields[len(fields)-1], "M"))
	if err != nil {
		d.t.Fatalf("df: %q", text)
	}
	return size
}

// TestGrowthRefused asks for more of a StorageClass that cannot grow, and takes it back.
func TestGrowthRefused(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	class := "fixed"
	d := newDatabase(t, cluster, "rigid", func(spec *v1alpha1.PostgresClusterSpec) { spec.StorageClassName = &class })
	d.awaitReady(readyTimeout)
	pods, set := d.podUIDs(1), d.statefulSet().UID

	d.mustPatchSpec(map[string]any{"storage": "2Gi"})
	t.Logf("Said after %s", eventually(t, conditionTimeout, "a condition ResizeRefused that names the class", func(ctx context.Context) (bool, string) {
		object := &v1alpha1.PostgresCluster{}
		if err := cluster.Client.Get(ctx, d.key(string(d.Cluster)), object); err != nil {
			return false, err.Error()
		}
		for _, condition := range object.Status.Conditions {
			if condition.Reason == v1alpha1.ReasonResizeRefused && strings.Contains(condition.Message, class) {
				return true, ""
			}
		}
		return false, fmt.Sprint(object.Status.Conditions)
	}))
	d.execSQL("create table goes_on ()")
	d.mustPatchSpec(map[string]any{"storage": "1Gi"})
	d.awaitReady(readyTimeout)
	if !slices.Equal(d.podUIDs(1), pods) || d.statefulSet().UID != set {
		t.Error("the refused growth replaced the pod or the StatefulSet")
	}
}
