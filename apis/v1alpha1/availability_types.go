package v1alpha1

// SynchronousMode says whether commits wait for replicas.
//
// +kubebuilder:validation:Enum=off;quorum
type SynchronousMode string

const (
	// SynchronousModeOff lets commits return before a replica has them.
	SynchronousModeOff SynchronousMode = "off"
	// SynchronousModeQuorum lets a commit return when a number of replicas have it, whichever they are.
	SynchronousModeQuorum SynchronousMode = "quorum"
)

// Durability says what happens to commits when fewer replicas stream than have to confirm them.
//
// +kubebuilder:validation:Enum=required;preferred
type Durability string

const (
	// DurabilityRequired lets commits wait for replicas that are away: what was acknowledged is never lost.
	DurabilityRequired Durability = "required"
	// DurabilityPreferred lets commits go on without replicas that are away.
	DurabilityPreferred Durability = "preferred"
)

// SynchronousReplication says how many replicas confirm a commit before it is acknowledged.
type SynchronousReplication struct {
	// mode is off (commits do not wait) or quorum (a commit waits until number replicas have it on disk, whichever they are).
	// In YAML off needs quotes: without, it is the word for false.
	// +required
	Mode SynchronousMode `json:"mode,omitempty"`

	// number is how many replicas confirm a commit, less than spec.replicas. 1 when omitted.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	Number *int32 `json:"number,omitempty"`

	// durability is required (commits wait while too few replicas stream, and only an instance that provably has every
	// acknowledged commit becomes the primary) or preferred (they go on without). required when omitted.
	// +optional
	Durability Durability `json:"durability,omitempty"`
}

// Failover says when a replica takes over from a primary that is lost.
//
// +kubebuilder:validation:XValidation:rule="!has(self.suspicion) || !self.suspicion.matches('^[0-9]{1,5}(ms|s|[.][0-9]{1,3}s)$') || has(self.leaseDuration) && !self.leaseDuration.matches('^([5-9]|[1-5][0-9]|60)s$') || duration(self.suspicion) < duration(has(self.leaseDuration) ? self.leaseDuration : '10s')",fieldPath=".suspicion",message="must be less than spec.failover.leaseDuration",messageExpression="'must be less than spec.failover.leaseDuration, which is ' + (has(self.leaseDuration) ? self.leaseDuration : '10s when omitted')"
type Failover struct {
	// enabled lets replicas take over; true when omitted. When false, the primary stays where it is, also when you ask for
	// a move, and there is none until it comes back.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// leaseDuration is how long a primary that is cut off goes on at most, and how long replicas wait before they take over
	// from one of which nothing is known: whole seconds from 5s to 60s. The operator's --failover-lease-duration, 10s unless
	// it is set, when omitted.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([5-9]|[1-5][0-9]|60)s$')",message="must be whole seconds from 5s to 60s, such as 10s"
	LeaseDuration string `json:"leaseDuration,omitempty"`

	// suspicion is how long nothing is heard of the primary before replicas take over without waiting for leaseDuration,
	// where synchronous replication with durability required makes that safe: from 500ms to 30s. 1500ms when omitted.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,5}(ms|s|[.][0-9]{1,3}s)$') && duration(self) >= duration('500ms') && duration(self) <= duration('30s')",message="must be from 500ms to 30s, such as 1500ms"
	Suspicion string `json:"suspicion,omitempty"`

	// maxLag is the most that a replica may lack of the write-ahead log, as far as the primary had written it when it last
	// renewed its Lease, and still take over: in whole Ki, Mi or Gi, up to 1024Gi. What the primary wrote after that may be
	// lost as well. Not used with durability required, which needs a proof that nothing is lost. 16Mi when omitted.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,6})(Ki|Mi|Gi)$') && quantity(self).compareTo(quantity('1024Gi')) <= 0",message="must be whole Ki, Mi or Gi up to 1024Gi, such as 16Mi"
	MaxLag string `json:"maxLag,omitempty"`
}
