package status_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

// TestPlannedChanges tells of every turn of a switchover once.
func TestPlannedChanges(t *testing.T) {
	running := &v1alpha1.SwitchoverStatus{
		Request: "any", State: v1alpha1.SwitchoverRunning, From: "db-0", To: "db-1", Term: 1, StartedTime: &metav1.Time{Time: now},
	}
	tests := map[string]struct {
		stored *v1alpha1.SwitchoverStatus
		change func(*snapshot.Cluster)
		// event is the reason of the event, with its type and part of its text; ready is the reason of Ready.
		event, kind, says, ready string
	}{
		"waits": {
			change: func(s *snapshot.Cluster) { s.Instances[1].Report.State = contract.StateNotStreaming },
			event:  "SwitchoverWaiting", kind: corev1.EventTypeWarning, says: "db-1 does not stream", ready: v1alpha1.ReasonHealing,
		},
		"begins": {
			event: "SwitchoverStarted", kind: corev1.EventTypeNormal, says: "db-0 hands over to db-1 (any)",
			ready: v1alpha1.ReasonSwitchingOver,
		},
		"goes on": {stored: running, ready: v1alpha1.ReasonSwitchingOver},
		"goes on without a primary": {
			stored: running, ready: v1alpha1.ReasonSwitchingOver,
			change: func(s *snapshot.Cluster) { s.Instances[0].Report.Role = ""; notReady(s, 0) },
		},
		"is done": {
			stored: running, event: "SwitchoverDone", kind: corev1.EventTypeNormal, says: "db-1 is the primary",
			ready: v1alpha1.ReasonAllReplicasReady,
			change: func(s *snapshot.Cluster) {
				s.Instances[0].Report.Role, s.Instances[1].Report.Role, s.Instances[1].Report.Term = contract.RoleReplica, contract.RolePrimary, 2
			},
		},
		"fails": {
			stored: running, event: "SwitchoverFailed", kind: corev1.EventTypeWarning, says: "db-1 did not take over in time",
			ready: v1alpha1.ReasonAllReplicasReady,
			change: func(s *snapshot.Cluster) {
				s.Instances[0].Report.Term, s.Instances[0].Report.LastOrder = 2, "switchover-db-0-db-1-1"
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			s.Object.Annotations = map[string]string{naming.AnnotationSwitchover: naming.SwitchoverAny}
			s.Object.Status.Switchover = test.stored
			if test.change != nil {
				test.change(s)
			}
			computed, told := status.Compute(s, next(s), &outcome.Result{}, now)
			if reason := computed.Conditions[0].Reason; reason != test.ready {
				t.Errorf("Ready has the reason %s, want %s", reason, test.ready)
			}
			found := status.Event{}
			for _, event := range told {
				if strings.HasPrefix(event.Reason, "Switchover") {
					found = event
				}
			}
			if found.Reason != test.event || found.Type != test.kind || !strings.Contains(found.Message, test.says) {
				t.Errorf("told %+v, want %s", found, test.event)
			}
			written := status.Configuration(s.Object, &computed).Status.Switchover
			if computed.Switchover == nil || written == nil || *written.State != computed.Switchover.State ||
				*written.Request != computed.Switchover.Request {
				t.Errorf("written %+v of %+v", written, computed.Switchover)
			}
		})
	}
}
