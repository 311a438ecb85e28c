package observe

import (
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

func controlled(kind string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: "db", UID: uid, Controller: new(true)}}
}

// TestWhatAnEarlierClusterLeft: pods and volumes of a dead cluster of the same name carry the same labels, and must not
// tell the new one that it has data.
func TestWhatAnEarlierClusterLeft(t *testing.T) {
	const reported = `{"role":"Primary","term":7,"systemID":"42","dataVersion":"16","state":"Running"}`
	tests := map[string]struct {
		set      []metav1.OwnerReference
		pod      []metav1.OwnerReference
		report   string
		claim    metav1.ObjectMeta
		systemID string
		// member says that the pod is the cluster's; data is what the cluster is known to hold.
		member bool
		data   string
	}{
		"its own pod": {
			set: controlled("PostgresCluster", "new"), pod: controlled("StatefulSet", "set"), report: reported, member: true, data: "42",
		},
		"the old StatefulSet is still there": {
			set: controlled("PostgresCluster", "old"), pod: controlled("StatefulSet", "set"), report: reported,
		},
		"the old StatefulSet is gone, its pod is not": {pod: controlled("StatefulSet", "old-set"), report: reported},
		"the new StatefulSet waits for the old pod": {
			set: controlled("PostgresCluster", "new"), pod: controlled("StatefulSet", "old-set"), report: reported,
		},
		"an old pod beside an initialised cluster": {
			set: controlled("PostgresCluster", "new"), pod: controlled("StatefulSet", "old-set"), report: reported,
			systemID: "77", data: "77",
		},
		"a pod of nobody, and nothing is known": {report: reported},
		"the StatefulSet is made anew": {
			report: reported, systemID: "42", member: true, data: "42",
		},
		"the cache shows the StatefulSet's end before its pods'": {
			pod: controlled("StatefulSet", "set-before"), report: reported, systemID: "42", member: true, data: "42",
		},
		"the same, of a pod that has no data yet": {
			set: controlled("PostgresCluster", "new"), pod: controlled("StatefulSet", "set-before"), report: `{"state":"Waiting"}`,
			systemID: "42", member: true, data: "42",
		},
		"somebody else's pod": {
			set: controlled("PostgresCluster", "new"), pod: controlled("ReplicaSet", "x"), report: reported, systemID: "42", data: "42",
		},
		"a kept volume": {
			claim: metav1.ObjectMeta{Annotations: map[string]string{naming.AnnotationSystemID: "42"}}, data: "42",
		},
		"a volume that is being deleted": {claim: metav1.ObjectMeta{
			DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
			Annotations:       map[string]string{naming.AnnotationSystemID: "42"},
		}},
		"an old cluster's own volume": {claim: metav1.ObjectMeta{
			OwnerReferences: controlled("PostgresCluster", "old"), Annotations: map[string]string{naming.AnnotationSystemID: "42"},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "new"}}
			cluster.Status.SystemID = test.systemID
			facts := Facts{cluster: cluster}
			if test.set != nil {
				facts.statefulSets.Items = []appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{
					Name: "db", UID: "set", OwnerReferences: test.set,
				}}}
			}
			if test.report != "" {
				facts.pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{
					Name: "db-0", OwnerReferences: test.pod, Annotations: map[string]string{naming.AnnotationReport: test.report},
				}}}
			}
			test.claim.Name = "data-db-0"
			facts.claims.Items = []corev1.PersistentVolumeClaim{{ObjectMeta: test.claim}}
			s := facts.Snapshot(cluster)
			if id, _ := s.SystemID(); id != test.data {
				t.Errorf("the cluster is said to hold data %q, want %q", id, test.data)
			}
			instance, _ := s.Instance(0)
			if member := instance.Pod != nil; member != test.member {
				t.Errorf("the pod counts as the cluster's: %v, want %v", member, test.member)
			}
			if version, known := s.DataVersion(); known && !test.member {
				t.Errorf("the data is said to be of version %s", version)
			}
		})
	}
}

// TestForgedPods: whoever may create pods can label them as a cluster's and let them report anything.
func TestForgedPods(t *testing.T) {
	set := func(name string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "StatefulSet", Name: name, UID: uid, Controller: new(true)}}
	}
	tests := map[string]struct {
		pod    string
		owners []metav1.OwnerReference
		// anew says that there is no StatefulSet at the moment.
		anew   bool
		member bool
	}{
		"of its StatefulSet":                         {pod: "db-1", owners: set("db", "set"), member: true},
		"of its StatefulSet, beyond its replicas":    {pod: "db-7", owners: set("db", "set"), member: true},
		"not adopted yet":                            {pod: "db-1", member: true},
		"not adopted yet, of the last one":           {pod: "db-1", owners: set("db", "before"), member: true},
		"of another StatefulSet":                     {pod: "db-1", owners: set("evil", "x")},
		"of another StatefulSet, while it is away":   {pod: "db-1", owners: set("evil", "x"), anew: true},
		"of nobody, beyond its replicas":             {pod: "db-7"},
		"of an invented one, beyond its replicas":    {pod: "db-7", owners: set("db", "x")},
		"of the last one, while the next is to come": {pod: "db-2", owners: set("db", "before"), anew: true, member: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "uid"}}
			cluster.Status.SystemID = "42"
			facts := Facts{cluster: cluster}
			if !test.anew {
				facts.statefulSets.Items = []appsv1.StatefulSet{{
					ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "set", OwnerReferences: controlled("PostgresCluster", "uid")},
					Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(2))},
				}}
			}
			facts.pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{
				Name: test.pod, OwnerReferences: test.owners,
				Annotations: map[string]string{naming.AnnotationReport: `{"role":"Primary","term":2000000000,"systemID":"42","dataVersion":"18"}`},
			}}}
			s := facts.Snapshot(cluster)
			if _, known := s.Primary(); known != test.member {
				t.Errorf("the pod is believed: %v, want %v", known, test.member)
			}
		})
	}
}

// TestFingerprintOfTwoChanges: a pod and its StatefulSet move in step, since the report of the one changes the other's status.
func TestFingerprintOfTwoChanges(t *testing.T) {
	f := &Facts{cluster: &v1alpha1.PostgresCluster{}}
	f.pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "b2847d04-f01f-4209-b06f-824f61379598"}}}
	f.statefulSets.Items = []appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{UID: "865613b1-ea66-4502-9ba2-3939d191a615"}}}
	type versions struct{ pod, set int }
	seen := map[uint64]versions{}
	for pod := 4800; pod < 4900; pod++ {
		for set := 4800; set < 4900; set++ {
			f.pods.Items[0].ResourceVersion, f.statefulSets.Items[0].ResourceVersion = strconv.Itoa(pod), strconv.Itoa(set)
			fingerprint := f.Fingerprint()
			if other, known := seen[fingerprint]; known {
				t.Fatalf("the versions %+v and %+v have one fingerprint", other, versions{pod, set})
			}
			seen[fingerprint] = versions{pod, set}
		}
	}
}

// TestLeavingPods: whoever has made them, their names are taken, which only matters before there is a StatefulSet.
func TestLeavingPods(t *testing.T) {
	now := metav1.Now()
	cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "new"}}
	facts := Facts{cluster: cluster}
	facts.pods.Items = []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "db-0", OwnerReferences: controlled("StatefulSet", "old")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "db-1", OwnerReferences: controlled("StatefulSet", "old"), DeletionTimestamp: &now}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other", DeletionTimestamp: &now}},
	}
	if leaving := facts.Snapshot(cluster).Leaving; len(leaving) != 1 || leaving[0].Name != "db-1" {
		t.Errorf("leaving: %v", leaving)
	}
	facts.statefulSets.Items = []appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{
		Name: "db", UID: "set", OwnerReferences: controlled("PostgresCluster", "new"),
	}}}
	if leaving := facts.Snapshot(cluster).Leaving; len(leaving) != 0 {
		t.Errorf("beside a StatefulSet are leaving: %v", leaving)
	}
}
