package observe_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/observe"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// eventReader answers a list with events, whatever it asks for.
type eventReader struct {
	client.Reader
	events []corev1.Event
	reads  int
}

func (r *eventReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	r.reads++
	list.(*corev1.EventList).Items = append([]corev1.Event(nil), r.events...)
	return nil
}

func TestRefusals(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	event := func(age time.Duration, uid, reason, message string) corev1.Event {
		return corev1.Event{
			InvolvedObject: corev1.ObjectReference{UID: "set"}, Reason: reason, Message: message,
			ObjectMeta:    metav1.ObjectMeta{Name: message + uid},
			LastTimestamp: metav1.NewTime(now.Add(-age)),
		}
	}
	const failed = `create Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: exceeded quota: q`
	tests := map[string]struct {
		events []corev1.Event
		want   string
	}{
		"nothing is known": {},
		"the controller's words are left out": {
			events: []corev1.Event{event(time.Minute, "1", "FailedCreate", failed)},
			want:   `pods "db-0" is forbidden: exceeded quota: q`,
		},
		"the latest counts": {
			events: []corev1.Event{
				event(time.Minute, "1", "FailedCreate", "x failed error: new"), event(time.Hour, "2", "FailedCreate", "x failed error: old"),
			},
			want: "new",
		},
		"a pod that could be created since then makes it void": {
			events: []corev1.Event{
				event(time.Hour, "1", "FailedCreate", failed), event(time.Minute, "2", "SuccessfulCreate", "created"),
			},
		},
		"a conflict of two writers is no refusal": {
			events: []corev1.Event{event(time.Minute, "1", "FailedCreate", "x failed error: the object has been modified")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			replicas := int32(1)
			s := &snapshot.Cluster{
				Object:      &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "1"}},
				StatefulSet: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "set"}},
			}
			s.StatefulSet.Spec.Replicas = &replicas
			reader := &eventReader{events: test.events}
			observer := &observe.Observer{Live: reader}
			for range 3 {
				if err := observer.Refusals(t.Context(), s, now); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			if len(s.Refusals) > 0 {
				got = s.Refusals[0].Message
			}
			if got != test.want {
				t.Errorf("refusal %q, want %q", got, test.want)
			}
			if reader.reads != 1 {
				t.Errorf("%d reads at one moment", reader.reads)
			}
		})
	}
}
