package v1alpha1

// Types of the conditions of a PostgresCluster. All are always present.
const (
	// ConditionReady is True when every wanted instance takes part and nothing stands against the spec.
	ConditionReady = "Ready"
	// ConditionProgressing is True while the operator is working towards the spec.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when the cluster serves with less than was asked for.
	ConditionDegraded = "Degraded"
	// ConditionStalled is True when nothing goes on until somebody acts; its message says who and how.
	ConditionStalled = "Stalled"
	// ConditionPaused is True when spec.paused stops the operator.
	ConditionPaused = "Paused"
)

// Reasons of the conditions of a PostgresCluster.
const (
	// ReasonAllReplicasReady says that every wanted instance is ready.
	ReasonAllReplicasReady = "AllReplicasReady"
	// ReasonProvisioning says that the cluster is being made.
	ReasonProvisioning = "Provisioning"
	// ReasonScaling says that instances are being added or removed.
	ReasonScaling = "Scaling"
	// ReasonUpdating says that instances are being restarted to follow the spec.
	ReasonUpdating = "Updating"
	// ReasonSwitchingOver says that the primary is handing over to another instance, as planned.
	ReasonSwitchingOver = "SwitchingOver"
	// ReasonResizing says that volumes are growing.
	ReasonResizing = "Resizing"
	// ReasonHealing says that an instance that was ready is being brought back.
	ReasonHealing = "Healing"
	// ReasonNoPrimary says that no instance takes writes.
	ReasonNoPrimary = "NoPrimary"
	// ReasonWaitingForQuorum says that no instance takes over, because one that does not answer may have more commits.
	ReasonWaitingForQuorum = "WaitingForQuorum"
	// ReasonWaitingForInstances says that no instance takes over before all have said what they have: the Lease was lost.
	ReasonWaitingForInstances = "WaitingForInstances"
	// ReasonWaitingForLease says that the primary is silent, and that nobody takes over until its Lease ends.
	ReasonWaitingForLease = "WaitingForLease"
	// ReasonTooFarBehind says that no instance takes over, because each lacks more than may be lost.
	ReasonTooFarBehind = "TooFarBehind"
	// ReasonFailoverDisabled says that no instance takes over, because spec.failover.enabled is false.
	ReasonFailoverDisabled = "FailoverDisabled"
	// ReasonWaitingForReplicas says that commits wait, because too few replicas stream to confirm them.
	ReasonWaitingForReplicas = "WaitingForReplicas"
	// ReasonPaused says that spec.paused is set; of Ready, that the spec is not carried out for it.
	ReasonPaused = "Paused"
	// ReasonNotPaused says that spec.paused is not set.
	ReasonNotPaused = "NotPaused"
	// ReasonDeleting says that the cluster is being deleted.
	ReasonDeleting = "Deleting"

	// ReasonInvalidSpec says that the spec breaks a rule that admission would have refused.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNameConflict says that an object of the needed name exists and belongs to somebody else.
	ReasonNameConflict = "NameConflict"
	// ReasonContested says that another field manager keeps taking a field of ours.
	ReasonContested = "Contested"
	// ReasonCertManagerMissing says that the API server does not know cert-manager's kinds.
	ReasonCertManagerMissing = "CertManagerMissing"
	// ReasonCertificateNotReady says that a certificate has not been issued.
	ReasonCertificateNotReady = "CertificateNotReady"
	// ReasonStorageClassMissing says that the StorageClass does not exist.
	ReasonStorageClassMissing = "StorageClassMissing"
	// ReasonVolumeNotBound says that a volume could not be provisioned.
	ReasonVolumeNotBound = "VolumeNotBound"
	// ReasonVolumeLost says that an instance's volume is gone, or is being deleted under it.
	ReasonVolumeLost = "VolumeLost"
	// ReasonResizeRefused says that the StorageClass cannot grow volumes.
	ReasonResizeRefused = "ResizeRefused"
	// ReasonUnschedulable says that no node takes a pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImagePullFailed says that an image could not be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonInstanceFailed says that an instance cannot run; its message says why.
	ReasonInstanceFailed = "InstanceFailed"
	// ReasonQuotaExceeded says that a ResourceQuota or LimitRange refuses an object.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonForbidden says that the API server refuses an object for lack of rights or by a policy.
	ReasonForbidden = "Forbidden"
	// ReasonUnsupportedByServer says that the API server does not know a field that we need.
	ReasonUnsupportedByServer = "UnsupportedByServer"
	// ReasonMajorUpgradePending says that the data is of an older major version than the spec.
	ReasonMajorUpgradePending = "MajorUpgradePending"
	// ReasonScaleDownBlocked says that the primary is among the instances to be removed, and no other can take over.
	ReasonScaleDownBlocked = "ScaleDownBlocked"
	// ReasonApplyFailed says that an object could not be applied; it is tried again.
	ReasonApplyFailed = "ApplyFailed"

	// ReasonAsExpected is the reason of a False condition that reports trouble when True.
	ReasonAsExpected = "AsExpected"
)
