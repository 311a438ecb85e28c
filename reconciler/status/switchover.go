package status

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
)

// planned is a planned change of primary within the schema's limits.
func planned(record *v1alpha1.SwitchoverStatus) *v1alpha1.SwitchoverStatus {
	record = record.DeepCopy()
	if record != nil {
		record.Message = limit(record.Message)
	}
	return record
}

// handingOver words the change of primary that is going on as planned; empty when none is.
func handingOver(plan decide.Plan) string {
	for _, record := range []*v1alpha1.SwitchoverStatus{plan.Switchover, plan.HandOver} {
		if record != nil && record.State == v1alpha1.SwitchoverRunning {
			return fmt.Sprintf("%s hands over to %s", record.From, record.To)
		}
	}
	return ""
}

// plannedEvents tell how planned changes of primary go on.
func plannedEvents(stored, status *v1alpha1.PostgresClusterStatus) []Event {
	var events []Event
	for _, change := range []struct{ before, after *v1alpha1.SwitchoverStatus }{
		{stored.Switchover, status.Switchover}, {stored.HandOver, status.HandOver},
	} {
		before, after := change.before, change.after
		if after == nil || before != nil && before.Request == after.Request && before.State == after.State {
			continue
		}
		event := Event{Transition: true, Type: corev1.EventTypeNormal, Action: "SwitchOver"}
		switch after.State {
		case v1alpha1.SwitchoverWaiting:
			event.Type, event.Reason = corev1.EventTypeWarning, "SwitchoverWaiting"
			event.Message = fmt.Sprintf("switchover (%s) waits: %s", after.Request, after.Message)
		case v1alpha1.SwitchoverRunning:
			event.Reason = "SwitchoverStarted"
			event.Message = fmt.Sprintf("instance %s hands over to %s (%s)", after.From, after.To, after.Request)
		case v1alpha1.SwitchoverFailed:
			event.Type, event.Reason = corev1.EventTypeWarning, "SwitchoverFailed"
			event.Message = fmt.Sprintf("switchover (%s) failed: %s", after.Request, after.Message)
		case v1alpha1.SwitchoverDone:
			event.Reason = "SwitchoverDone"
			event.Message = fmt.Sprintf("switchover (%s) is done: instance %s is the primary", after.Request, status.Primary)
		}
		events = append(events, event)
	}
	return events
}
