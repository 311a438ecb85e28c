package e2e

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestRollsWithinLimits: a full quota does not stop a roll, because one pod makes room for the next; and what the API
// server would refuse stops it before a database is stopped.
func TestRollsWithinLimits(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "limits", replicas(2))
	d.awaitReady(readyTimeout)
	d.makeQuota("full", corev1.ResourcePods, "2")
	l := d.write()
	before := d.podUIDs(2)
	tolerate := func(key string) {
		d.mustPatchSpec(map[string]any{"tolerations": []any{map[string]any{"key": key, "operator": "Exists"}}})
	}
	tolerate("first")
	d.awaitReady(readyTimeout)
	rolled := d.podUIDs(2)
	if slices.Contains(rolled, before[0]) || slices.Contains(rolled, before[1]) {
		t.Errorf("pods %v became %v", before, rolled)
	}

	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "tiny"}}
	limits.Spec.Limits = []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePod, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")},
	}}
	if err := cluster.Client.Create(t.Context(), limits); err != nil {
		t.Fatal(err)
	}
	d.awaitWrites(l, conditionTimeout)
	tolerate("second")
	elapsed := d.awaitTrouble(conditionTimeout, v1alpha1.ReasonQuotaExceeded, "maximum cpu usage", "LimitRange tiny")
	t.Logf("Said after %s", elapsed.Round(100*time.Millisecond))
	d.awaitWrites(l, conditionTimeout)
	if after := d.podUIDs(2); !slices.Equal(after, rolled) {
		t.Errorf("pods %v became %v", rolled, after)
	}
	d.kubectl("delete", "limitrange", "tiny")
	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, readyTimeout)
	d.verify(l)
}
