package rules

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	requiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
)

func validateAffinity(s *spec, path *field.Path) field.ErrorList {
	if s.Affinity == nil {
		return nil
	}
	path = path.Child("affinity")
	errs := validateNodeAffinity(s.Affinity.NodeAffinity, path.Child("nodeAffinity"))
	if a := s.Affinity.PodAffinity; a != nil {
		errs = append(errs, validatePodTerms(a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if a := s.Affinity.PodAntiAffinity; a != nil {
		errs = append(errs, validatePodTerms(a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

func validateNodeAffinity(a *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := path.Child(requiredTerms, "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(terms, "needs at least one term"))
		}
		for i := range required.NodeSelectorTerms {
			errs = append(errs, validateNodeTerm(&required.NodeSelectorTerms[i], terms.Index(i))...)
			errs = append(errs, validateNodeValues(&required.NodeSelectorTerms[i], terms.Index(i))...)
		}
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term, item := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], path.Child(preferredTerms).Index(i)
		errs = append(errs, validateWeight(term.Weight, item)...)
		errs = append(errs, validateNodeTerm(&term.Preference, item.Child("preference"))...)
	}
	return errs
}

func validateNodeTerm(term *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		e, item := &term.MatchExpressions[i], path.Child("matchExpressions").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(e.Key, item.Child("key"))...)
		errs = append(errs, validateNodeOperator(e, item)...)
	}
	for i := range term.MatchFields {
		e, item := &term.MatchFields[i], path.Child("matchFields").Index(i)
		if e.Key != "metadata.name" {
			errs = append(errs, field.NotSupported(item.Child("key"), e.Key, []string{"metadata.name"}))
		}
		if (e.Operator != corev1.NodeSelectorOpIn && e.Operator != corev1.NodeSelectorOpNotIn) || len(e.Values) != 1 {
			errs = append(errs, field.Invalid(item, e.Operator, "must be In or NotIn with exactly one value"))
		}
		for j, value := range e.Values {
			errs = append(errs, invalidEach(item.Child("values").Index(j), value, validation.IsDNS1123Subdomain(value))...)
		}
	}
	return errs
}

// validateNodeValues refuses values that no label of a node has. Preferred terms may have such: they prefer nothing.
func validateNodeValues(term *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		for j, value := range term.MatchExpressions[i].Values {
			errs = append(errs, invalidEach(path.Child("matchExpressions").Index(i).Child("values").Index(j), value,
				validation.IsValidLabelValue(value))...)
		}
	}
	return errs
}

func validateNodeOperator(e *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	switch e.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(e.Values) == 0 {
			return field.ErrorList{field.Required(path.Child("values"), "must be set when operator is In or NotIn")}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			return field.ErrorList{field.Forbidden(path.Child("values"),
				"must be empty when operator is Exists or DoesNotExist")}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(e.Values) != 1 {
			return field.ErrorList{field.Required(path.Child("values"), "must be one value when operator is Gt or Lt")}
		}
	default:
		return field.ErrorList{field.NotSupported(path.Child("operator"), e.Operator, []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		})}
	}
	return nil
}

func validatePodTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm,
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, validatePodTerm(&required[i], path.Child(requiredTerms).Index(i))...)
	}
	for i := range preferred {
		item := path.Child(preferredTerms).Index(i)
		errs = append(errs, validateWeight(preferred[i].Weight, item)...)
		errs = append(errs, validatePodTerm(&preferred[i].PodAffinityTerm, item.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := topologyKey(t.TopologyKey, path)
	errs = append(errs, labelSelector(t.LabelSelector, path.Child("labelSelector"))...)
	errs = append(errs, labelSelector(t.NamespaceSelector, path.Child("namespaceSelector"))...)
	for i, namespace := range t.Namespaces {
		errs = append(errs, invalidEach(path.Child("namespaces").Index(i), namespace,
			validation.IsDNS1123Label(namespace))...)
	}
	errs = append(errs, matchLabelKeys(t.MatchLabelKeys, t.LabelSelector, path.Child("matchLabelKeys"))...)
	// A key that must not match may be in the selector too, to narrow it.
	errs = append(errs, labelKeys(t.MismatchLabelKeys, t.LabelSelector, path.Child("mismatchLabelKeys"))...)
	for i, key := range t.MismatchLabelKeys {
		if slices.Contains(t.MatchLabelKeys, key) {
			errs = append(errs, field.Invalid(path.Child("mismatchLabelKeys").Index(i), key,
				"must not be in matchLabelKeys too"))
		}
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight >= 1 && weight <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("weight"), weight, "must be from 1 to 100")}
}
