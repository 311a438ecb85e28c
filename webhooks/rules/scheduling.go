package rules

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
)

// The rules of this file and of affinity.go are those by which the API server judges a pod template, applied where
// the user can still see the answer.

func validateNodeSelector(s *spec, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))
}

func validateTolerations(s *spec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range s.Tolerations {
		errs = append(errs, validateToleration(&s.Tolerations[i], path.Child("tolerations").Index(i))...)
	}
	return errs
}

func validateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	} else if t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator,
			"must be Exists when key is empty: it then tolerates every taint"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect,
			"must be NoExecute when tolerationSeconds is set"))
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		errs = append(errs, invalidEach(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty when operator is Exists"))
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value,
				fmt.Sprintf("must be a whole number when operator is %s", t.Operator)))
		}
	default:
		errs = append(errs, oneOf(path.Child("operator"), t.Operator,
			corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpGt, corev1.TolerationOpLt)...)
	}
	return append(errs, oneOf(path.Child("effect"), t.Effect,
		corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)...)
}

func validateSpread(s *spec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type pair struct {
		key    string
		action corev1.UnsatisfiableConstraintAction
	}
	seen := map[pair]bool{}
	for i := range s.TopologySpreadConstraints {
		c, item := &s.TopologySpreadConstraints[i], path.Child("topologySpreadConstraints").Index(i)
		errs = append(errs, validateSpreadConstraint(c, item)...)
		p := pair{c.TopologyKey, c.WhenUnsatisfiable}
		if seen[p] {
			errs = append(errs, field.Duplicate(item, fmt.Sprintf("topologyKey %s, whenUnsatisfiable %s", p.key, p.action)))
		}
		seen[p] = true
	}
	return errs
}

func validateSpreadConstraint(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	errs := topologyKey(c.TopologyKey, path)
	if c.MaxSkew < 1 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
	}
	if c.WhenUnsatisfiable == "" {
		errs = append(errs, field.Required(path.Child("whenUnsatisfiable"), "set DoNotSchedule or ScheduleAnyway"))
	}
	errs = append(errs, oneOf(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
		corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
	if c.MinDomains != nil && *c.MinDomains < 1 {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *c.MinDomains, "must be greater than zero"))
	}
	if c.MinDomains != nil && c.WhenUnsatisfiable == corev1.ScheduleAnyway {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *c.MinDomains,
			"can only be set when whenUnsatisfiable is DoNotSchedule"))
	}
	if c.NodeAffinityPolicy != nil {
		errs = append(errs, oneOf(path.Child("nodeAffinityPolicy"), *c.NodeAffinityPolicy,
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
	}
	if c.NodeTaintsPolicy != nil {
		errs = append(errs, oneOf(path.Child("nodeTaintsPolicy"), *c.NodeTaintsPolicy,
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
	}
	errs = append(errs, labelSelector(c.LabelSelector, path.Child("labelSelector"))...)
	return append(errs, matchLabelKeys(c.MatchLabelKeys, spreadSelector(c), path.Child("matchLabelKeys"))...)
}

// spreadSelector is the selector that a constraint gets: without one, the cluster's own instances.
func spreadSelector(c *corev1.TopologySpreadConstraint) *metav1.LabelSelector {
	if c.LabelSelector != nil && len(c.LabelSelector.MatchLabels)+len(c.LabelSelector.MatchExpressions) > 0 {
		return c.LabelSelector
	}
	return &metav1.LabelSelector{MatchLabels: naming.Cluster("").SelectorLabels()}
}

func topologyKey(key string, path *field.Path) field.ErrorList {
	path = path.Child("topologyKey")
	if key == "" {
		return field.ErrorList{field.Required(path, "name a label of nodes, such as kubernetes.io/hostname")}
	}
	return metav1validation.ValidateLabelName(key, path)
}

func labelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// labelKeys must be names of labels, beside a selector.
func labelKeys(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) > 0 && selector == nil {
		return field.ErrorList{field.Forbidden(path, "needs a labelSelector")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

// matchLabelKeys must be names of labels that the selector does not use itself: the pod would be refused.
func matchLabelKeys(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	errs := labelKeys(keys, selector, path)
	if selector == nil {
		return errs
	}
	used := map[string]bool{}
	for key := range selector.MatchLabels {
		used[key] = true
	}
	for _, e := range selector.MatchExpressions {
		used[e.Key] = true
	}
	for i, key := range keys {
		if used[key] {
			errs = append(errs, field.Invalid(path.Index(i), key, "must not be in labelSelector too"))
		}
		used[key] = true
	}
	return errs
}
