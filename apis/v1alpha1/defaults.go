package v1alpha1

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultReplicas is the number of instances when spec.replicas is omitted. The schema has it too.
const DefaultReplicas int32 = 1

// What spec.failover means where it is silent. The lease's duration is a setting of the operator, too.
const (
	DefaultLeaseDuration = 10 * time.Second
	DefaultSuspicion     = 1500 * time.Millisecond
	// DefaultMaxLag is in bytes.
	DefaultMaxLag int64 = 16 << 20
)

// MaxStorageGi is the largest spec.storage, in gibibytes: 64Ti.
const MaxStorageGi = 65536

// Defaults are the values of fields whose default is a setting of the operator.
//
// +kubebuilder:object:generate=false
type Defaults struct {
	// Version is the major version of PostgreSQL, such as "17".
	Version string
	// Storage is the size of a volume, such as "50Gi".
	Storage string
}

// Default fills in what is unset and leaves what is set alone; twice is the same as once. The admission webhook stores
// its result; the reconciler calls it in memory for objects that were stored without the webhook. A cluster that runs
// keeps what it has when the operator's defaults change, so its status comes before d.
func (c *PostgresCluster) Default(d Defaults) {
	spec, status := &c.Spec, &c.Status
	if spec.Replicas == nil {
		replicas := DefaultReplicas
		spec.Replicas = &replicas
	}
	spec.Version = firstSet(spec.Version, status.Version, d.Version)
	spec.Storage = firstSet(spec.Storage, gibibytes(status.ProvisionedStorage), d.Storage)
	spec.DeletionPolicy = firstSet(spec.DeletionPolicy, DeletionPolicyRetain)
	spec.UpgradePolicy = firstSet(spec.UpgradePolicy, UpgradePolicyMinorOnly)
}

// KeepUnset fills in version and storage from an earlier state of the object where this one leaves them out: leaving
// out means "no opinion", never "the operator's default", which might be smaller or newer.
func (c *PostgresCluster) KeepUnset(old *PostgresCluster) {
	c.Spec.Version = firstSet(c.Spec.Version, old.Spec.Version)
	c.Spec.Storage = firstSet(c.Spec.Storage, old.Spec.Storage)
}

func firstSet[S ~string](values ...S) S {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// gibibytes rounds a quantity down to the form of spec.storage; "" when that is not one.
func gibibytes(quantity string) string {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return ""
	}
	const gi = 1 << 30
	whole := q.Value() / gi
	if whole < 1 || whole > MaxStorageGi {
		return ""
	}
	return strconv.FormatInt(whole, 10) + "Gi"
}

// SynchronousNumber is how many replicas confirm a commit; 0 when commits do not wait.
func (s *PostgresClusterSpec) SynchronousNumber() int32 {
	switch {
	case s.Synchronous == nil || s.Synchronous.Mode != SynchronousModeQuorum:
		return 0
	case s.Synchronous.Number == nil:
		return 1
	}
	return *s.Synchronous.Number
}

// SynchronousRequired says that commits wait, and wait on while too few replicas stream.
func (s *PostgresClusterSpec) SynchronousRequired() bool {
	return s.SynchronousNumber() > 0 && s.Synchronous.Durability != DurabilityPreferred
}

// FailoverEnabled says that replicas take over by themselves.
func (s *PostgresClusterSpec) FailoverEnabled() bool {
	return s.Failover == nil || s.Failover.Enabled == nil || *s.Failover.Enabled
}

// LeaseDuration is how long a silent primary keeps its Lease; otherwise where the spec does not say.
func (s *PostgresClusterSpec) LeaseDuration(otherwise time.Duration) time.Duration {
	if s.Failover == nil {
		return otherwise
	}
	return durationOr(s.Failover.LeaseDuration, otherwise)
}

// Suspicion is how long nothing may be heard of a primary.
func (s *PostgresClusterSpec) Suspicion() time.Duration {
	if s.Failover == nil {
		return DefaultSuspicion
	}
	return durationOr(s.Failover.Suspicion, DefaultSuspicion)
}

// MaxLag is the most write-ahead log in bytes that a replica may lack and still take over without proof.
func (s *PostgresClusterSpec) MaxLag() int64 {
	if s.Failover == nil {
		return DefaultMaxLag
	}
	if q, err := resource.ParseQuantity(s.Failover.MaxLag); err == nil {
		return q.Value()
	}
	return DefaultMaxLag
}

func durationOr(text string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return otherwise
}
