package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/acme/pg-operator/reconciler/snapshot"
)

// schedule copies the user's wishes leaf by leaf: an API struct inside an apply configuration would claim its zero
// values too.
func schedule(spec *corev1ac.PodSpecApplyConfiguration, s *snapshot.Cluster) *corev1ac.PodSpecApplyConfiguration {
	wishes := s.Object.Spec
	spec.WithAffinity(affinity(wishes.Affinity, s))
	if len(wishes.NodeSelector) > 0 {
		spec.WithNodeSelector(wishes.NodeSelector)
	}
	for i := range wishes.Tolerations {
		spec.WithTolerations(toleration(&wishes.Tolerations[i]))
	}
	seen := map[[2]string]bool{}
	for i := range wishes.TopologySpreadConstraints {
		constraint := &wishes.TopologySpreadConstraints[i]
		// The server answers a repeated key with an internal error; the first one counts.
		key := [2]string{constraint.TopologyKey, string(constraint.WhenUnsatisfiable)}
		if !seen[key] {
			seen[key] = true
			spec.WithTopologySpreadConstraints(topologySpread(constraint, s))
		}
	}
	return spec
}

// affinity is the user's, and prefers different nodes unless the user says something about that.
func affinity(a *corev1.Affinity, s *snapshot.Cluster) *corev1ac.AffinityApplyConfiguration {
	ac := corev1ac.Affinity()
	if a != nil && a.NodeAffinity != nil {
		ac.WithNodeAffinity(nodeAffinity(a.NodeAffinity))
	}
	if a != nil && a.PodAffinity != nil {
		pod := corev1ac.PodAffinity()
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			pod.WithRequiredDuringSchedulingIgnoredDuringExecution(
				podAffinityTerm(&a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]))
		}
		for i := range a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			pod.WithPreferredDuringSchedulingIgnoredDuringExecution(
				weightedTerm(&a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]))
		}
		ac.WithPodAffinity(pod)
	}
	anti := corev1ac.PodAntiAffinity()
	if a == nil || a.PodAntiAffinity == nil {
		return ac.WithPodAntiAffinity(anti.WithPreferredDuringSchedulingIgnoredDuringExecution(
			corev1ac.WeightedPodAffinityTerm().WithWeight(100).WithPodAffinityTerm(corev1ac.PodAffinityTerm().
				WithTopologyKey(corev1.LabelHostname).
				WithLabelSelector(instanceSelector(s)))))
	}
	for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		anti.WithRequiredDuringSchedulingIgnoredDuringExecution(
			podAffinityTerm(&a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]))
	}
	for i := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		anti.WithPreferredDuringSchedulingIgnoredDuringExecution(
			weightedTerm(&a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]))
	}
	return ac.WithPodAntiAffinity(anti)
}

func nodeAffinity(a *corev1.NodeAffinity) *corev1ac.NodeAffinityApplyConfiguration {
	ac := corev1ac.NodeAffinity()
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		selector := corev1ac.NodeSelector()
		for i := range required.NodeSelectorTerms {
			selector.WithNodeSelectorTerms(nodeSelectorTerm(&required.NodeSelectorTerms[i]))
		}
		ac.WithRequiredDuringSchedulingIgnoredDuringExecution(selector)
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		preferred := &a.PreferredDuringSchedulingIgnoredDuringExecution[i]
		ac.WithPreferredDuringSchedulingIgnoredDuringExecution(corev1ac.PreferredSchedulingTerm().
			WithWeight(preferred.Weight).
			WithPreference(nodeSelectorTerm(&preferred.Preference)))
	}
	return ac
}

func nodeSelectorTerm(term *corev1.NodeSelectorTerm) *corev1ac.NodeSelectorTermApplyConfiguration {
	ac := corev1ac.NodeSelectorTerm()
	for i := range term.MatchExpressions {
		ac.WithMatchExpressions(nodeRequirement(&term.MatchExpressions[i]))
	}
	for i := range term.MatchFields {
		ac.WithMatchFields(nodeRequirement(&term.MatchFields[i]))
	}
	return ac
}

func nodeRequirement(r *corev1.NodeSelectorRequirement) *corev1ac.NodeSelectorRequirementApplyConfiguration {
	return corev1ac.NodeSelectorRequirement().WithKey(r.Key).WithOperator(r.Operator).WithValues(r.Values...)
}

func weightedTerm(term *corev1.WeightedPodAffinityTerm) *corev1ac.WeightedPodAffinityTermApplyConfiguration {
	return corev1ac.WeightedPodAffinityTerm().
		WithWeight(term.Weight).
		WithPodAffinityTerm(podAffinityTerm(&term.PodAffinityTerm))
}

func podAffinityTerm(term *corev1.PodAffinityTerm) *corev1ac.PodAffinityTermApplyConfiguration {
	ac := corev1ac.PodAffinityTerm().
		WithTopologyKey(term.TopologyKey).
		WithNamespaces(term.Namespaces...).
		WithMatchLabelKeys(term.MatchLabelKeys...).
		WithMismatchLabelKeys(term.MismatchLabelKeys...)
	if term.LabelSelector != nil {
		ac.WithLabelSelector(labelSelector(term.LabelSelector))
	}
	if term.NamespaceSelector != nil {
		ac.WithNamespaceSelector(labelSelector(term.NamespaceSelector))
	}
	return ac
}

func labelSelector(selector *metav1.LabelSelector) *metav1ac.LabelSelectorApplyConfiguration {
	ac := metav1ac.LabelSelector()
	if len(selector.MatchLabels) > 0 {
		ac.WithMatchLabels(selector.MatchLabels)
	}
	for i := range selector.MatchExpressions {
		r := &selector.MatchExpressions[i]
		ac.WithMatchExpressions(metav1ac.LabelSelectorRequirement().
			WithKey(r.Key).WithOperator(r.Operator).WithValues(r.Values...))
	}
	return ac
}

func toleration(t *corev1.Toleration) *corev1ac.TolerationApplyConfiguration {
	ac := corev1ac.Toleration()
	if t.Key != "" {
		ac.WithKey(t.Key)
	}
	if t.Operator != "" {
		ac.WithOperator(t.Operator)
	}
	if t.Value != "" {
		ac.WithValue(t.Value)
	}
	if t.Effect != "" {
		ac.WithEffect(t.Effect)
	}
	if t.TolerationSeconds != nil {
		ac.WithTolerationSeconds(*t.TolerationSeconds)
	}
	return ac
}

// topologySpread selects this cluster's instances unless the user selects others.
func topologySpread(
	c *corev1.TopologySpreadConstraint, s *snapshot.Cluster,
) *corev1ac.TopologySpreadConstraintApplyConfiguration {
	ac := corev1ac.TopologySpreadConstraint().
		WithMaxSkew(c.MaxSkew).
		WithTopologyKey(c.TopologyKey).
		WithWhenUnsatisfiable(c.WhenUnsatisfiable).
		WithMatchLabelKeys(c.MatchLabelKeys...)
	if c.LabelSelector == nil || len(c.LabelSelector.MatchLabels)+len(c.LabelSelector.MatchExpressions) == 0 {
		ac.WithLabelSelector(instanceSelector(s))
	} else {
		ac.WithLabelSelector(labelSelector(c.LabelSelector))
	}
	if c.MinDomains != nil {
		ac.WithMinDomains(*c.MinDomains)
	}
	if c.NodeAffinityPolicy != nil {
		ac.WithNodeAffinityPolicy(*c.NodeAffinityPolicy)
	}
	if c.NodeTaintsPolicy != nil {
		ac.WithNodeTaintsPolicy(*c.NodeTaintsPolicy)
	}
	return ac
}
