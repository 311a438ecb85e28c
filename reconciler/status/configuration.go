package status

import (
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	v1alpha1ac "github.com/acme/pg-operator/apis/applyconfiguration/apis/v1alpha1"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// Configuration is the whole status as an apply configuration. It names the cluster's resourceVersion, so that it never
// tells of another spec than the stored one, nor of another cluster of the same name: the API server does not compare
// the UID in an apply to /status.
func Configuration(
	cluster *v1alpha1.PostgresCluster, status *v1alpha1.PostgresClusterStatus,
) *v1alpha1ac.PostgresClusterApplyConfiguration {
	ac := v1alpha1ac.PostgresClusterStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithReplicas(*status.Replicas).
		WithReadyReplicas(*status.ReadyReplicas).
		WithSelector(status.Selector)
	setUnlessEmpty(&ac.Version, status.Version)
	setUnlessEmpty(&ac.Primary, status.Primary)
	setUnlessEmpty(&ac.SystemID, status.SystemID)
	setUnlessEmpty(&ac.ProvisionedStorage, status.ProvisionedStorage)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		ac.WithConditions(metav1ac.Condition().
			WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	for _, instance := range status.Instances {
		entry := v1alpha1ac.InstanceStatus().WithName(instance.Name).WithRole(instance.Role).WithState(instance.State)
		if instance.Timeline != 0 {
			entry.WithTimeline(instance.Timeline)
		}
		setUnlessEmpty(&entry.Message, instance.Message)
		ac.WithInstances(entry)
	}
	for _, step := range status.Plan {
		ac.WithPlan(v1alpha1ac.PlannedStep().
			WithInstance(step.Instance).WithAction(step.Action).WithReason(step.Reason))
	}
	for i := range status.Conflicts {
		c := &status.Conflicts[i]
		entry := v1alpha1ac.FieldConflict().WithKind(c.Kind).WithName(c.Name).WithFieldPath(c.FieldPath).
			WithManager(c.Manager).WithResolution(c.Resolution)
		entry.Time = c.Time
		ac.WithConflicts(entry)
	}
	if status.Switchover != nil {
		ac.WithSwitchover(switchover(status.Switchover))
	}
	if status.HandOver != nil {
		ac.WithHandOver(switchover(status.HandOver))
	}
	if last := status.LastFailover; last != nil {
		ac.WithLastFailover(failoverConfiguration(last))
	}
	if quorum := status.Synchronous; quorum != nil {
		ac.WithSynchronous(v1alpha1ac.SynchronousStatus().WithNumber(quorum.Number).WithStandbys(quorum.Standbys...))
	}
	return v1alpha1ac.PostgresCluster(cluster.Name, cluster.Namespace).
		WithUID(cluster.UID).WithResourceVersion(cluster.ResourceVersion).WithStatus(ac)
}

func failoverConfiguration(last *v1alpha1.FailoverRecord) *v1alpha1ac.FailoverRecordApplyConfiguration {
	record := v1alpha1ac.FailoverRecord().WithTo(last.To).WithTerm(last.Term)
	setUnlessEmpty(&record.From, last.From)
	setUnlessEmpty(&record.Cause, last.Cause)
	setUnlessEmpty(&record.LostUnknown, last.LostUnknown)
	record.DetectedTime, record.PromotedTime, record.LostBytes = last.DetectedTime, last.PromotedTime, last.LostBytes
	return record
}

func switchover(record *v1alpha1.SwitchoverStatus) *v1alpha1ac.SwitchoverStatusApplyConfiguration {
	ac := v1alpha1ac.SwitchoverStatus().WithRequest(record.Request).WithState(record.State)
	setUnlessEmpty(&ac.From, record.From)
	setUnlessEmpty(&ac.To, record.To)
	setUnlessEmpty(&ac.Message, record.Message)
	if record.Term != 0 {
		ac.WithTerm(record.Term)
	}
	ac.StartedTime = record.StartedTime
	return ac
}

func setUnlessEmpty(field **string, value string) {
	if value != "" {
		*field = &value
	}
}
