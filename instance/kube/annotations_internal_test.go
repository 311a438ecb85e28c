package kube

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/lease"
)

// object is a Lease with annotations as a patch sets them.
func object(t *testing.T, l lease.Lease) *coordinationv1.Lease {
	t.Helper()
	annotations, err := leaseAnnotations(l)
	if err != nil {
		t.Fatal(err)
	}
	o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: l.Version, Annotations: map[string]string{}}}
	for name, value := range annotations {
		if text, ok := value.(string); ok {
			o.Annotations[name] = text
		}
	}
	seconds := int32(l.Duration / time.Second)
	o.Spec.HolderIdentity, o.Spec.LeaseTransitions, o.Spec.LeaseDurationSeconds = &l.Holder, &l.Term, &seconds
	return o
}

func full() lease.Lease {
	lost := int64(0)
	return lease.Lease{
		Holder: "db-0_a", Term: 4, SystemID: "7", Timeline: 3, Newest: 4, WALLSN: 1 << 33, Members: []string{"db-0", "db-1"},
		Released: 77, ReleasedBy: "db-1_b", Successor: "db-1", Version: "9", Duration: 10 * time.Second,
		Sync:     lease.Sync{Required: true, InForce: []lease.Quorum{{Number: 1, Standbys: []string{"db-1", "db-2"}}}},
		Failover: &lease.Failover{From: "db-1", To: "db-0", Cause: "it died", Term: 4, Detected: time.Unix(5, 0).UTC(), LostBytes: &lost},
	}
}

func TestAnnotationsRoundTrip(t *testing.T) {
	for _, want := range []lease.Lease{{}, {Holder: "db-0_a", Term: 1}, full()} {
		if got := decodeLease(object(t, want)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestMalformedAnnotations has somebody damage each annotation: the rest is read, and the damage is named.
func TestMalformedAnnotations(t *testing.T) {
	for annotation, texts := range map[string][]string{
		naming.AnnotationLeaseMembers:  {",", "db-0,db-0", "DB", strings.Repeat("a,", 20) + "b"},
		naming.AnnotationLeaseTimeline: {"x", "-1", "5000000000"},
		naming.AnnotationLeaseNewest:   {"x"},
		naming.AnnotationLeaseWALLSN:   {"x", "0", strings.Repeat("1", 10000)},
		naming.AnnotationLeaseReleased: {"x"},
		naming.AnnotationLeaseSync:     {"x", "required", strings.Repeat("x", 10000)},
	} {
		for _, text := range texts {
			o := object(t, full())
			o.Annotations[annotation] = text
			got := decodeLease(o)
			if !strings.Contains(got.Problem, annotation) || len(got.Problem) > 300 {
				t.Errorf("%s: problem %q", annotation, got.Problem)
			}
			if got.Holder != "db-0_a" || got.Term != 4 || got.Version != "9" || got.SystemID != "7" {
				t.Errorf("%s: got %+v", annotation, got)
			}
		}
	}
	for _, text := range []string{"x", "[]", strings.Repeat("x", maxFailoverText+1)} {
		o := object(t, full())
		o.Annotations[naming.AnnotationLeaseFailover] = text
		if got := decodeLease(o); got.Problem != "" || !strings.Contains(got.Failover.Cause, naming.AnnotationLeaseFailover) {
			t.Errorf("got %+v", got)
		}
	}
}

// TestLongRecord is shortened to what is read again.
func TestLongRecord(t *testing.T) {
	l := full()
	l.Failover.Cause, l.Failover.LostUnknown = strings.Repeat("<é", 9999), strings.Repeat("&", 9999)
	got := decodeLease(object(t, l))
	if got.Failover.To != "db-0" || len(got.Failover.Cause) > maxText || !strings.HasPrefix(l.Failover.Cause, got.Failover.Cause) {
		t.Errorf("got %+v", got.Failover)
	}
}

// TestNothingLeft takes away what a Lease no longer says.
func TestNothingLeft(t *testing.T) {
	before, err := leaseAnnotations(full())
	if err != nil {
		t.Fatal(err)
	}
	after, err := leaseAnnotations(lease.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	for name := range maps.Keys(before) {
		if value, there := after[name]; !there || value != nil {
			t.Errorf("%s stays", name)
		}
	}
}
