package v1alpha1

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultReplicas is the number of instances when spec.replicas is omitted. The schema has it too.
const DefaultReplicas int32 = 1

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
