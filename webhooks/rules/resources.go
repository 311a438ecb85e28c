package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// leastMemory is the smallest memory limit with which a container of PostgreSQL and the agent comes up.
var leastMemory = resource.MustParse("64Mi")

// validateResources refuses what the API server would refuse in the pod, and limits nothing can run in.
func validateResources(s *spec, path *field.Path) field.ErrorList {
	path = path.Child("resources")
	requests, limits := path.Child("requests"), path.Child("limits")
	var errs field.ErrorList
	if len(s.Resources.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims are not supported"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Resources.Limits)) {
		value := s.Resources.Limits[name]
		errs = append(errs, validateResourceName(name, limits.Key(string(name)))...)
		errs = append(errs, validateLimit(name, value, limits.Key(string(name)))...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Resources.Requests)) {
		value := s.Resources.Requests[name]
		errs = append(errs, validateResourceName(name, requests.Key(string(name)))...)
		errs = append(errs, validateRequest(name, value, s.Resources.Limits, requests.Key(string(name)))...)
	}
	return append(errs, validateHugePages(s.Resources, path)...)
}

func validateLimit(name corev1.ResourceName, value resource.Quantity, path *field.Path) field.ErrorList {
	switch {
	case value.Sign() <= 0:
		return field.ErrorList{field.Invalid(path, value.String(), "must be greater than zero: leave a limit out for none")}
	case name == corev1.ResourceMemory && value.Cmp(leastMemory) < 0:
		return field.ErrorList{field.Invalid(path, value.String(),
			fmt.Sprintf("memory must be at least %s: PostgreSQL does not start with less", leastMemory.String()))}
	case !isDivisible(name) && !isWhole(value):
		return field.ErrorList{field.Invalid(path, value.String(), "must be a whole number")}
	case isHugePages(name) && !isPages(name, value):
		return field.ErrorList{field.Invalid(path, value.String(),
			fmt.Sprintf("%s must be a multiple of the size of a page, which its name says", name))}
	default:
		return nil
	}
}

func validateRequest(name corev1.ResourceName, value resource.Quantity, limits corev1.ResourceList,
	path *field.Path,
) field.ErrorList {
	limit, limited := limits[name]
	switch {
	case value.Sign() < 0:
		return field.ErrorList{field.Invalid(path, value.String(), "must not be negative")}
	case !isDivisible(name) && !isWhole(value):
		return field.ErrorList{field.Invalid(path, value.String(), "must be a whole number")}
	case !isDivisible(name) && (!limited || limit.Cmp(value) != 0):
		return field.ErrorList{field.Invalid(path, value.String(),
			fmt.Sprintf("%s cannot be overcommitted: set the same value under limits", name))}
	case limited && value.Cmp(limit) > 0:
		return field.ErrorList{field.Invalid(path, value.String(),
			fmt.Sprintf("%s must not exceed its limit of %s", name, limit.String()))}
	default:
		return nil
	}
}

// isNative tells Kubernetes' own resources from those of device plugins.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isDivisible tells the resources that containers share by fractions from those they get in whole pieces.
func isDivisible(name corev1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isPages says that a value is whole pages of the size in the resource's name, as the API server wants it.
func isPages(name corev1.ResourceName, value resource.Quantity) bool {
	size, isQuantity := quantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return isQuantity && size.Sign() > 0 && isWhole(size) && value.Value()%size.Value() == 0
}

func isWhole(value resource.Quantity) bool { return value.MilliValue()%1000 == 0 }

func validateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return nil
	}
	prefixed := strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	if (isHugePages(name) || prefixed) && len(validation.IsQualifiedName(string(name))) == 0 {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, name, []string{
		"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "vendor.example.com/device",
	})}
}

// validateHugePages asks for cpu or memory beside huge pages, as the API server does.
func validateHugePages(r corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	has := func(wanted func(corev1.ResourceName) bool) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for name := range list {
				if wanted(name) {
					return true
				}
			}
		}
		return false
	}
	isBase := func(n corev1.ResourceName) bool { return n == corev1.ResourceCPU || n == corev1.ResourceMemory }
	if !has(isHugePages) || has(isBase) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "huge pages need cpu or memory beside them")}
}
