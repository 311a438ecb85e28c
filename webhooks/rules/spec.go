package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/postgres"
)

// Bounds of spec.replicas; the schema has them too.
const (
	minReplicas = 1
	maxReplicas = 5
)

// Texts that the CRD has too, word for word.
var (
	nameDetail = fmt.Sprintf("name must be at most %d lower-case letters, digits and '-', start with a letter and not "+
		"end with '-', because pods, Services and Secrets are named after it", naming.MaxClusterName)
	storageDetail = fmt.Sprintf("must be whole gibibytes from 1Gi to %dGi, such as 20Gi", v1alpha1.MaxStorageGi)
)

const imageDetail = "must be an image reference such as registry.example.com/postgres:17 or postgres@sha256:0123..."

var (
	storageForm = regexp.MustCompile(`^[1-9][0-9]{0,4}Gi$`)

	// imageForm is the grammar of image references: host and port, path, tag, digest.
	imageForm = regexp.MustCompile(`^(([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[a-fA-F0-9:]+\])(:[0-9]+)?/)?` +
		`[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*` +
		`(:(?P<tag>[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}))?` +
		`(@(?P<digest>[a-z0-9]+([+._-][a-z0-9]+)*:[a-fA-F0-9]{32,}))?$`)
)

func validateReplicas(s *spec, path *field.Path) field.ErrorList {
	if s.Replicas == nil || (*s.Replicas >= minReplicas && *s.Replicas <= maxReplicas) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("replicas"), *s.Replicas,
		fmt.Sprintf("must be from %d to %d", minReplicas, maxReplicas))}
}

func validateVersion(s *spec, path *field.Path) field.ErrorList {
	if s.Version == "" || slices.Contains(postgres.Majors(), s.Version) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("version"), s.Version, postgres.Majors())}
}

func validateStorage(s *spec, path *field.Path) field.ErrorList {
	if s.Storage == "" {
		return nil
	}
	if _, ok := storageGi(s.Storage); !ok {
		return field.ErrorList{field.Invalid(path.Child("storage"), s.Storage, storageDetail)}
	}
	return nil
}

// storageGi is the number of gibibytes of a valid spec.storage.
func storageGi(storage string) (gi int64, ok bool) {
	if !storageForm.MatchString(storage) {
		return 0, false
	}
	gi, err := strconv.ParseInt(storage[:len(storage)-len("Gi")], 10, 64)
	return gi, err == nil && gi <= v1alpha1.MaxStorageGi
}

func validateStorageClassName(s *spec, path *field.Path) field.ErrorList {
	if s.StorageClassName == nil || *s.StorageClassName == "" {
		return nil
	}
	return invalidEach(path.Child("storageClassName"), *s.StorageClassName,
		validation.IsDNS1123Subdomain(*s.StorageClassName))
}

func validateImage(s *spec, path *field.Path) field.ErrorList {
	if s.Image == "" || (len(s.Image) <= 1024 && imageForm.MatchString(s.Image)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("image"), s.Image, imageDetail)}
}

func validateDeletionPolicy(s *spec, path *field.Path) field.ErrorList {
	return oneOf(path.Child("deletionPolicy"), s.DeletionPolicy,
		v1alpha1.DeletionPolicyDelete, v1alpha1.DeletionPolicyRetain)
}

func validateUpgradePolicy(s *spec, path *field.Path) field.ErrorList {
	return oneOf(path.Child("upgradePolicy"), s.UpgradePolicy,
		v1alpha1.UpgradePolicyAllowMajor, v1alpha1.UpgradePolicyMinorOnly)
}

// validateParameters judges all settings when the version changes, else those that changed. Values are not repeated:
// one may hold a password.
func validateParameters(old, s *spec, path *field.Path) field.ErrorList {
	return parameterErrors(s, path, func(problem postgres.ParameterProblem) bool {
		return old != nil && old.Version == s.Version && sameParameters(old, s, append(problem.With, problem.Name))
	})
}

// parameterErrors are the problems of all settings but those that are left out.
func parameterErrors(s *spec, path *field.Path, leaveOut func(postgres.ParameterProblem) bool) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range postgres.CheckParameters(judgedMajor(s), s.Parameters) {
		if !leaveOut(problem) {
			errs = append(errs, field.Invalid(path.Key(problem.Name), field.OmitValueType{}, problem.Detail))
		}
	}
	return errs
}

// sameParameters tells whether two specs have the same values of some settings. Case does not matter in names.
func sameParameters(a, b *spec, names []string) bool {
	inA, inB := lowerNames(a.Parameters), lowerNames(b.Parameters)
	for _, name := range names {
		valueA, setA := inA[strings.ToLower(name)]
		valueB, setB := inB[strings.ToLower(name)]
		if setA != setB || valueA != valueB {
			return false
		}
	}
	return true
}

// lowerNames gives each name once; of two that differ in case only, the last in order counts, as in a rendered file.
func lowerNames(parameters map[string]string) map[string]string {
	lower := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		lower[strings.ToLower(name)] = parameters[name]
	}
	return lower
}

// oneOf accepts the zero value and the listed ones.
func oneOf[S ~string](path *field.Path, value S, accepted ...S) field.ErrorList {
	if value == "" || slices.Contains(accepted, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, accepted)}
}

func invalidEach(path *field.Path, value any, details []string) field.ErrorList {
	var errs field.ErrorList
	for _, detail := range details {
		errs = append(errs, field.Invalid(path, value, detail))
	}
	return errs
}

// sorted orders errors by field, so that the same mistake gives the same text each time.
func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	return errs
}
