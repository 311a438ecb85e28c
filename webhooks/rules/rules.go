// Package rules judges PostgresClusters. It is pure: the admission webhooks and
// the reconciler's guard call the same functions. What the CRD's schema and CEL
// can express is there too, so that it holds without the webhook; a test runs
// one table through both.
package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/postgres"
)

type spec = v1alpha1.PostgresClusterSpec

// ValidateCreate judges a new cluster. Fields that have a default may be unset. Errors are sorted by field.
func ValidateCreate(cluster *v1alpha1.PostgresCluster) field.ErrorList {
	errs := append(validateName(cluster), validateSwitchover(nil, cluster)...)
	return sorted(append(errs, check(nil, &cluster.Spec)...))
}

// ValidateUpdate judges a change. Only what changes is judged: a field that was invalid before and is left alone
// blocks neither another field nor a finalizer. Errors are sorted by field.
func ValidateUpdate(old, cluster *v1alpha1.PostgresCluster) field.ErrorList {
	errs := validateSwitchover(old, cluster)
	if equality.Semantic.DeepEqual(old.Spec, cluster.Spec) {
		return errs
	}
	errs = append(errs, validateTransition(old, cluster)...)
	return sorted(append(errs, check(&old.Spec, &cluster.Spec)...))
}

// ValidateSpec judges a spec by itself, whatever was before. Errors are sorted by field.
func ValidateSpec(s *v1alpha1.PostgresClusterSpec) field.ErrorList {
	return sorted(check(nil, s))
}

// ValidateStored judges the spec of a stored object before it is acted upon. Unlike ValidateSpec it passes settings that
// a running database copes with: an operator that learned of a rule must not stop the care for clusters that an older
// one admitted, when PostgreSQL ignores the setting and status reports it. Errors are sorted by field.
func ValidateStored(s *v1alpha1.PostgresClusterSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := parameterErrors(s, path.Child("parameters"), func(problem postgres.ParameterProblem) bool { return problem.Harmless })
	return sorted(append(errs, checkRules(nil, s, path)...))
}

// ValidateVolumes judges only how the volumes change. Errors are sorted by field.
func ValidateVolumes(old, cluster *v1alpha1.PostgresCluster) field.ErrorList {
	path := field.NewPath("spec")
	errs := changeStorageClass(&old.Spec, &cluster.Spec, path.Child("storageClassName"))
	return sorted(append(errs, changeStorage(old, cluster, path.Child("storage"))...))
}

// rule judges one field. inputs are all that its verdict depends on: while they do not change, it is not judged.
type rule struct {
	inputs func(*spec) any
	judge  func(*spec, *field.Path) field.ErrorList
}

var specRules = []rule{
	{func(s *spec) any { return s.Replicas }, validateReplicas},
	{func(s *spec) any { return s.Version }, validateVersion},
	{func(s *spec) any { return s.Storage }, validateStorage},
	{func(s *spec) any { return s.StorageClassName }, validateStorageClassName},
	{func(s *spec) any { return s.Image }, validateImage},
	{func(s *spec) any { return s.Resources }, validateResources},
	{func(s *spec) any { return s.NodeSelector }, validateNodeSelector},
	{func(s *spec) any { return s.Tolerations }, validateTolerations},
	{func(s *spec) any { return s.TopologySpreadConstraints }, validateSpread},
	{func(s *spec) any { return s.Affinity }, validateAffinity},
	{func(s *spec) any { return s.DeletionPolicy }, validateDeletionPolicy},
	{func(s *spec) any { return s.UpgradePolicy }, validateUpgradePolicy},
	{func(s *spec) any { return s.Parameters }, atMost("parameters", 256, func(s *spec) int { return len(s.Parameters) })},
	{func(s *spec) any { return []any{s.Parameters, s.HBA} }, validateSettingsSize},
	{func(s *spec) any { return s.NodeSelector }, atMost("nodeSelector", 64, func(s *spec) int { return len(s.NodeSelector) })},
	{func(s *spec) any { return s.Tolerations }, atMost("tolerations", 64, func(s *spec) int { return len(s.Tolerations) })},
	{
		func(s *spec) any { return s.TopologySpreadConstraints },
		atMost("topologySpreadConstraints", 16, func(s *spec) int { return len(s.TopologySpreadConstraints) }),
	},
}

// check applies every rule to s; with an old spec, only to what differs from it.
func check(old, s *spec) field.ErrorList {
	path := field.NewPath("spec")
	return append(validateParameters(old, s, path.Child("parameters")), checkRules(old, s, path)...)
}

func checkRules(old, s *spec, path *field.Path) field.ErrorList {
	errs := validateHBA(old, s, path.Child("hba"))
	for _, r := range slices.Concat(specRules, availabilityRules) {
		if old != nil && equality.Semantic.DeepEqual(r.inputs(old), r.inputs(s)) {
			continue
		}
		errs = append(errs, r.judge(s, path)...)
	}
	return errs
}

func validateName(cluster *v1alpha1.PostgresCluster) field.ErrorList {
	name := cluster.Name
	if name == "" && cluster.GenerateName != "" {
		return nil // The API server has not made the name yet.
	}
	if len(name) <= naming.MaxClusterName && len(validation.IsDNS1035Label(name)) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, nameDetail)}
}
