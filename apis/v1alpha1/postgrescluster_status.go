package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PostgresClusterStatus is what was last seen of a cluster.
type PostgresClusterStatus struct {
	// conditions say how the cluster does; Ready sums them up.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of instances that exist.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of instances that take part: the primary accepts connections, a replica streams.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// selector of the instances' pods, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// version is the major version of the data.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Version string `json:"version,omitempty"`

	// primary is the instance that takes writes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Primary string `json:"primary,omitempty"`

	// systemID is PostgreSQL's identifier of the data, made at initdb and equal on all instances.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	SystemID string `json:"systemID,omitempty"`

	// provisionedStorage is the smallest capacity among the instances' volumes.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ProvisionedStorage string `json:"provisionedStorage,omitempty"`

	// instances that exist, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Instances []InstanceStatus `json:"instances,omitempty"`

	// plan is what will be done next, to which instance and why.
	// +optional
	// +listType=map
	// +listMapKey=instance
	// +kubebuilder:validation:MaxItems=16
	Plan []PlannedStep `json:"plan,omitempty"`

	// conflicts are the latest changes that other field managers made to fields of the operator's objects, at most 16.
	// One that ended is dropped after an hour.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +listMapKey=fieldPath
	// +listMapKey=manager
	// +kubebuilder:validation:MaxItems=16
	Conflicts []FieldConflict `json:"conflicts,omitempty"`

	// synchronous is what commits wait for at present, as the primary says; left out when they do not wait.
	// +optional
	Synchronous *SynchronousStatus `json:"synchronous,omitempty"` //nolint:kubeapilinter // nil says that they do not wait

	// switchover tells what became of the request in the annotation db.example.com/switchover.
	// +optional
	Switchover *SwitchoverStatus `json:"switchover,omitempty"` //nolint:kubeapilinter // nil says that nobody asks

	// handOver tells of the last change of primary that the operator wanted: to restart the primary's pod, or to remove it.
	// +optional
	HandOver *SwitchoverStatus `json:"handOver,omitempty"` //nolint:kubeapilinter // nil says that there was none

	// lastFailover tells of the last change of primary that nobody asked for.
	// +optional
	LastFailover *FailoverRecord `json:"lastFailover,omitempty"` //nolint:kubeapilinter // nil says that there was none
}

// InstanceRole is the part an instance plays.
//
// +kubebuilder:validation:Enum=Primary;Replica;Unknown
type InstanceRole string

const (
	// InstanceRolePrimary takes writes.
	InstanceRolePrimary InstanceRole = "Primary"
	// InstanceRoleReplica streams from the primary.
	InstanceRoleReplica InstanceRole = "Replica"
	// InstanceRoleUnknown has not reported.
	InstanceRoleUnknown InstanceRole = "Unknown"
)

// InstanceStatus is what is known of one instance.
type InstanceStatus struct {
	// name of the instance and of its pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// role the instance reported.
	// +optional
	Role InstanceRole `json:"role,omitempty"`
	// state the instance reported, such as Running, Cloning or Starting; Missing without a pod.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	State string `json:"state,omitempty"`
	// timeline of the instance's data.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`
	// message says why the instance is not running as wanted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PlannedStep is one thing that will be done to one instance.
type PlannedStep struct {
	// instance it concerns.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Instance string `json:"instance,omitempty"`
	// action that will be taken, such as Create, Restart, Remove, Wait.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Action string `json:"action,omitempty"`
	// reason for it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// SwitchoverState is how far a planned change of primary is.
//
// +kubebuilder:validation:Enum=Waiting;Running;Done;Failed
type SwitchoverState string

const (
	// SwitchoverWaiting cannot begin yet; the message says why.
	SwitchoverWaiting SwitchoverState = "Waiting"
	// SwitchoverRunning is ordered: the primary stops, and the target takes over.
	SwitchoverRunning SwitchoverState = "Running"
	// SwitchoverDone ended with another primary.
	SwitchoverDone SwitchoverState = "Done"
	// SwitchoverFailed ended with the old primary, and is not tried again by itself.
	SwitchoverFailed SwitchoverState = "Failed"
)

// SwitchoverStatus tells of one planned change of primary.
type SwitchoverStatus struct {
	// request is what asked for it: the annotation's value, or the operator's own purpose. Another one is a new request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Request string `json:"request,omitempty"`
	// state it is in.
	// +required
	State SwitchoverState `json:"state,omitempty"`
	// from is the primary that hands over.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from,omitempty"`
	// to is the instance that takes over.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	To string `json:"to,omitempty"`
	// term of the primary lock that it ends.
	// +optional
	Term int32 `json:"term,omitempty"`
	// startedTime is when it was ordered.
	// +optional
	StartedTime *metav1.Time `json:"startedTime,omitempty"`
	// message says what it waits for, or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// FailoverRecord explains one failover.
type FailoverRecord struct {
	// from is the instance that was the primary; left out when there was none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from,omitempty"`
	// to is the instance that became the primary.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	To string `json:"to,omitempty"`
	// cause of the failover. It begins with PostgresFailed, PrimaryDead, PrimarySilent, LeaseExpired or LeaseCleared.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Cause string `json:"cause,omitempty"`
	// term that began with it: it counts the changes of primary.
	// +optional
	Term int32 `json:"term,omitempty"`
	// detectedTime is when the new primary set out to take over: where it had to wait for the end of the Lease, after that.
	// +optional
	DetectedTime *metav1.MicroTime `json:"detectedTime,omitempty"`
	// promotedTime is when the new primary took writes.
	// +optional
	PromotedTime *metav1.MicroTime `json:"promotedTime,omitempty"`
	// lostBytes is the most write-ahead log that may be lost, in bytes; 0 when it is proven that no acknowledged commit is.
	// +optional
	LostBytes *int64 `json:"lostBytes,omitempty"`
	// lostUnknown says why lostBytes is not known, and left out.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LostUnknown string `json:"lostUnknown,omitempty"`
}

// SynchronousStatus is what commits wait for: any number of the standbys.
type SynchronousStatus struct {
	// number of standbys that confirm a commit.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number,omitempty"`
	// standbys are the instances of which any may confirm it.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Standbys []string `json:"standbys,omitempty"`
}

// ConflictResolution says what the operator did about a conflict.
//
// +kubebuilder:validation:Enum=TakenBack;Yielded;Contested
type ConflictResolution string

const (
	// ConflictTakenBack says that the field is again as the operator wants it.
	ConflictTakenBack ConflictResolution = "TakenBack"
	// ConflictYielded says that the field is left to the other manager.
	ConflictYielded ConflictResolution = "Yielded"
	// ConflictContested says that the other manager took the field too often: the object is left as it is for a while.
	ConflictContested ConflictResolution = "Contested"
)

// FieldConflict is one field of an object of the operator's that another field manager set.
type FieldConflict struct {
	// kind of the object, such as StatefulSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// fieldPath of the field, such as .spec.replicas.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	FieldPath string `json:"fieldPath,omitempty"`
	// manager is the field manager that set it, such as kubectl-edit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Manager string `json:"manager,omitempty"`
	// resolution is what the operator did about it.
	// +required
	Resolution ConflictResolution `json:"resolution,omitempty"`
	// time of the last such change.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
