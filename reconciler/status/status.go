// Package status words what was observed, planned and applied: it computes
// the status of a cluster and the events of its transitions. It is pure.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Event is a transition, or something done, worth telling.
type Event struct {
	// Transition events are told once the status that they belong to is stored, and not before.
	Transition bool
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type    string
	Reason  string
	Action  string
	Message string
}

// Compute words the status of a cluster. It starts from the stored one: a condition that stays keeps its time.
func Compute(
	s *snapshot.Cluster, plan decide.Plan, result *outcome.Result, now time.Time,
) (v1alpha1.PostgresClusterStatus, []Event) {
	stored := &s.Object.Status
	status := v1alpha1.PostgresClusterStatus{
		Conditions:         Own(stored.Conditions),
		ObservedGeneration: s.Object.Generation,
		Selector:           labels.SelectorFromSet(s.Names().SelectorLabels()).String(),
		LastFailover:       lastFailover(s, stored.LastFailover),
		Synchronous:        synchronousStatus(s),
		Switchover:         planned(plan.Switchover),
		HandOver:           planned(plan.HandOver),
		SystemID:           plan.SystemID,
		Plan:               steps(plan),
		Conflicts:          conflicts(stored.Conflicts, plan, result, now),
	}
	status.Version, _ = s.DataVersion()
	if primary, known := s.Primary(); known {
		status.Primary = primary.Name
	}
	if size, known := s.ProvisionedStorage(); known {
		status.ProvisionedStorage = size.String()
	}
	instances(s, &status)

	v := judge(s, plan, result, now, recall(stored))
	for _, condition := range v.conditions() {
		condition.ObservedGeneration = s.Object.Generation
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		condition.Message = limit(condition.Message)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	slices.SortFunc(status.Conditions, func(a, b metav1.Condition) int {
		return slices.Index(conditionTypes, a.Type) - slices.Index(conditionTypes, b.Type)
	})
	return status, events(s, &status, plan, result)
}

// steps are those of a plan, within the schema's limits: a reason may list many settings.
func steps(plan decide.Plan) []v1alpha1.PlannedStep {
	limited := slices.Clone(plan.Steps)
	for i := range limited {
		limited[i].Reason = limit(limited[i].Reason)
	}
	return limited
}

// instances lists the instances that exist or shall exist.
func instances(s *snapshot.Cluster, status *v1alpha1.PostgresClusterStatus) {
	var pods, ready int32
	for _, instance := range s.Instances {
		if instance.Pod == nil {
			if instance.Ordinal >= s.WantedReplicas() {
				continue // Only its volume is kept.
			}
			status.Instances = append(status.Instances, v1alpha1.InstanceStatus{
				Name: instance.Name, Role: v1alpha1.InstanceRoleUnknown, State: "Missing",
			})
			continue
		}
		pods++
		if instance.Ready() {
			ready++
		}
		status.Instances = append(status.Instances, instanceStatus(instance))
	}
	status.Replicas, status.ReadyReplicas = &pods, &ready
}

func instanceStatus(instance snapshot.Instance) v1alpha1.InstanceStatus {
	entry := v1alpha1.InstanceStatus{Name: instance.Name, Role: v1alpha1.InstanceRoleUnknown, State: "Pending"}
	if instance.Running() {
		entry.State = string(contract.StateStarting)
	}
	if report := instance.Report; report != nil {
		if report.Role != "" {
			entry.Role = v1alpha1.InstanceRole(report.Role)
		}
		entry.State, entry.Timeline, entry.Message = string(report.State), report.Timeline, limit(report.Message)
	}
	if instance.Terminating() {
		entry.State = "Terminating"
	}
	return entry
}

// conditionTypes are always all present, in this order.
var conditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded,
	v1alpha1.ConditionStalled, v1alpha1.ConditionPaused,
}

// Own are the conditions of an operator's status; others may add conditions of their own.
func Own(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool {
		return !slices.Contains(conditionTypes, c.Type)
	})
}

func recall(stored *v1alpha1.PostgresClusterStatus) history {
	h := history{}
	if ready := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionReady); ready != nil {
		h.previous = ready.Reason
	}
	remembered := ""
	if degraded := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionDegraded); degraded != nil {
		remembered = degraded.Reason
	}
	h.first = h.previous == "" || h.previous == v1alpha1.ReasonProvisioning || remembered == v1alpha1.ReasonProvisioning
	h.scaling = h.previous == v1alpha1.ReasonScaling || remembered == v1alpha1.ReasonScaling
	return h
}

// events tell of changes of the Ready condition, of restarts and of conflicts with other field managers.
func events(
	s *snapshot.Cluster, status *v1alpha1.PostgresClusterStatus, plan decide.Plan, result *outcome.Result,
) []Event {
	var events []Event
	stored := &s.Object.Status
	before := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionReady)
	after := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if before == nil || before.Reason != after.Reason || before.Status != after.Status {
		event := Event{Transition: true, Type: corev1.EventTypeNormal, Reason: after.Reason, Action: "Reconcile", Message: after.Message}
		if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled) ||
			meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDegraded) {
			event.Type = corev1.EventTypeWarning
		}
		events = append(events, event)
	}
	events = append(events, plannedEvents(stored, status)...)
	if stored.Primary != status.Primary && status.Primary != "" {
		events = append(events, Event{
			Transition: true, Type: corev1.EventTypeNormal, Reason: "PrimaryChanged", Action: "Observe",
			Message: fmt.Sprintf("instance %s is the primary", status.Primary),
		})
	}
	if record := FailedOver(stored, status); record != nil {
		events = append(events, failoverEvent(record))
	}
	if Restarted(plan, result) {
		events = append(events, Event{
			Type: corev1.EventTypeNormal, Reason: "InstanceRestarted", Action: "Restart",
			Message: fmt.Sprintf("instance %s is restarted: %s", plan.Restart.Instance, plan.Restart.Reason),
		})
	}
	events = append(events, conflictEvents(s.Object.Name, stored.Conflicts, status.Conflicts, result)...)
	for i := range events {
		events[i].Message = limit(events[i].Message)
	}
	return events
}

// Restarted says that the pod that the plan restarts was deleted.
func Restarted(plan decide.Plan, result *outcome.Result) bool {
	return plan.Restart != nil && slices.ContainsFunc(result.Outcomes, func(child outcome.ChildOutcome) bool {
		return child.Kind == "Pod" && child.Name == plan.Restart.Instance && child.Outcome == outcome.Deleted
	})
}

// limit keeps texts within the 1024 bytes that the API server takes of an event; the schema allows as many characters.
func limit(text string) string {
	const most, more = 1024, "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
