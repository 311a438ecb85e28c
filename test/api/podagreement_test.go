package api

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/webhooks/rules"
)

// Words of scheduling, right ones more often than wrong ones.
var (
	labelKeys   = []string{"disk", naming.LabelCluster, "example.com/zone", "topology.kubernetes.io/zone", "a b", "-a", ""}
	labelValues = []string{"ssd", "", "1", "-1", "x y", "a_b.c"}
	optionalInt = []*int32{nil, new(int32(1)), new(int32(0)), new(int32(3))}
)

func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// some draws a short list, often an empty one.
func some[T any](t *rapid.T, label string, draw func() T) []T {
	var list []T
	for range pick(t, label, 0, 0, 1, 1, 2) {
		list = append(list, draw())
	}
	return list
}

func drawToleration(t *rapid.T) corev1.Toleration {
	return corev1.Toleration{
		Key:               pick(t, "key", labelKeys...),
		Operator:          pick(t, "operator", "", corev1.TolerationOpExists, corev1.TolerationOpEqual, "Is"),
		Value:             pick(t, "value", labelValues...),
		Effect:            pick(t, "effect", "", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, "Never"),
		TolerationSeconds: pick(t, "seconds", nil, nil, new(int64(60))),
	}
}

func drawSelector(t *rapid.T) *metav1.LabelSelector {
	if rapid.Bool().Draw(t, "no selector") {
		return nil
	}
	selector := &metav1.LabelSelector{}
	if rapid.Bool().Draw(t, "labels") {
		selector.MatchLabels = map[string]string{pick(t, "label", labelKeys...): pick(t, "value", labelValues...)}
	}
	selector.MatchExpressions = some(t, "expressions", func() metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{
			Key:      pick(t, "key", labelKeys...),
			Operator: pick(t, "operator", metav1.LabelSelectorOpIn, metav1.LabelSelectorOpExists, "Is"),
			Values:   some(t, "values", func() string { return pick(t, "value", labelValues...) }),
		}
	})
	return selector
}

func drawSpread(t *rapid.T) corev1.TopologySpreadConstraint {
	policies := []*corev1.NodeInclusionPolicy{nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicy("Maybe"))}
	return corev1.TopologySpreadConstraint{
		MaxSkew: pick(t, "skew", int32(1), 1, 2, 0),
		// No key that cannot be a label's: the API server lets it pass, and then no node has it.
		TopologyKey:        pick(t, "topologyKey", "zone", "example.com/zone", ""),
		WhenUnsatisfiable:  pick(t, "when", corev1.DoNotSchedule, corev1.ScheduleAnyway, corev1.DoNotSchedule, "", "Maybe"),
		LabelSelector:      drawSelector(t),
		MinDomains:         pick(t, "minDomains", optionalInt...),
		NodeAffinityPolicy: pick(t, "affinityPolicy", policies...),
		NodeTaintsPolicy:   pick(t, "taintsPolicy", policies...),
		MatchLabelKeys:     some(t, "matchLabelKeys", func() string { return pick(t, "key", labelKeys...) }),
	}
}

func drawNodeTerm(t *rapid.T) corev1.NodeSelectorTerm {
	draw := func(keys ...string) []corev1.NodeSelectorRequirement {
		return some(t, "requirements", func() corev1.NodeSelectorRequirement {
			return corev1.NodeSelectorRequirement{
				Key: pick(t, "key", keys...),
				Operator: pick(t, "operator", corev1.NodeSelectorOpIn, corev1.NodeSelectorOpExists,
					corev1.NodeSelectorOpGt, "Is"),
				Values: some(t, "values", func() string { return pick(t, "value", labelValues...) }),
			}
		})
	}
	return corev1.NodeSelectorTerm{MatchExpressions: draw(labelKeys...), MatchFields: draw("metadata.name", "spec.x")}
}

func drawPodTerm(t *rapid.T) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		TopologyKey:       pick(t, "topologyKey", labelKeys...),
		LabelSelector:     drawSelector(t),
		NamespaceSelector: drawSelector(t),
		Namespaces:        some(t, "namespaces", func() string { return pick(t, "namespace", "shop", "shop", "A") }),
		MatchLabelKeys:    some(t, "matchLabelKeys", func() string { return pick(t, "key", labelKeys...) }),
		MismatchLabelKeys: some(t, "mismatchLabelKeys", func() string { return pick(t, "key", labelKeys...) }),
	}
}

func drawAffinity(t *rapid.T) *corev1.Affinity {
	weight := func() int32 { return pick(t, "weight", int32(1), 100, 0, 101) }
	affinity := &corev1.Affinity{}
	switch pick(t, "affinity", "node required", "node preferred", "pod required", "pod preferred") {
	case "node required":
		affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: some(t, "terms", func() corev1.NodeSelectorTerm { return drawNodeTerm(t) }),
		}}
	case "node preferred":
		affinity.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: some(t, "terms",
			func() corev1.PreferredSchedulingTerm {
				return corev1.PreferredSchedulingTerm{Weight: weight(), Preference: drawNodeTerm(t)}
			})}
	case "pod required":
		affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: some(t, "terms",
			func() corev1.PodAffinityTerm { return drawPodTerm(t) })}
	default:
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: some(t, "terms",
			func() corev1.WeightedPodAffinityTerm {
				return corev1.WeightedPodAffinityTerm{Weight: weight(), PodAffinityTerm: drawPodTerm(t)}
			})}
	}
	return affinity
}

func drawAnyResources(t *rapid.T) corev1.ResourceList {
	names := []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi", "hugepages-64Mi", "vendor.example.com/device", "ram", "kubernetes.io/x", "a/b/c"}
	list := corev1.ResourceList{}
	for range pick(t, "resources", 0, 1, 1, 2) {
		// No zero and no little memory: of those we are stricter than the API server.
		list[pick(t, "resource", names...)] = resource.MustParse(pick(t, "quantity", "1Gi", "2Gi", "100Mi", "100000000500m"))
	}
	return list
}

// TestRulesAgreeWithPods draws scheduling and resources and asks the rules, and the API server for a pod that has them:
// what admission admits can be created, and nothing that could be is refused.
func TestRulesAgreeWithPods(t *testing.T) {
	namespace := plane.Namespace(t)
	accepted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		for range 5 {
			spec := drawPodSettings(rt)
			errs := rules.ValidateSpec(&spec)
			err := plane.Client.Create(t.Context(), pod(namespace, &spec), client.DryRunAll)
			if (len(errs) > 0) != (err != nil) && !stricter(errs) {
				rt.Fatalf("the API server says of the pod: %v\nthe rules say: %v\nof %+v", err, errs.ToAggregate(), spec)
			}
			if err == nil {
				accepted++
			} else {
				refused++
			}
		}
	})
	if accepted < 50 || refused < 50 {
		t.Errorf("%d accepted, %d refused: too few of one kind to tell", accepted, refused)
	}
}

// stricter tells of the one rule that only some versions of the API server have: they changed with 1.34.
func stricter(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(e *field.Error) bool { return strings.Contains(e.Field, "atchLabelKeys[") })
}

func drawPodSettings(t *rapid.T) v1alpha1.PostgresClusterSpec {
	spec := v1alpha1.PostgresClusterSpec{}
	switch pick(t, "about", "nodeSelector", "tolerations", "spread", "affinity", "resources") {
	case "nodeSelector":
		spec.NodeSelector = map[string]string{pick(t, "key", labelKeys...): pick(t, "value", labelValues...)}
	case "tolerations":
		spec.Tolerations = some(t, "tolerations", func() corev1.Toleration { return drawToleration(t) })
	case "spread":
		spec.TopologySpreadConstraints = some(t, "spread", func() corev1.TopologySpreadConstraint { return drawSpread(t) })
	case "affinity":
		spec.Affinity = drawAffinity(t)
	default:
		spec.Resources = corev1.ResourceRequirements{Requests: drawAnyResources(t), Limits: drawAnyResources(t)}
	}
	return spec
}

func pod(namespace string, spec *v1alpha1.PostgresClusterSpec) *corev1.Pod {
	labels := naming.Cluster("orders-db").SelectorLabels()
	var spread []corev1.TopologySpreadConstraint
	for _, c := range spec.TopologySpreadConstraints {
		if c.LabelSelector == nil || len(c.LabelSelector.MatchLabels)+len(c.LabelSelector.MatchExpressions) == 0 {
			c.LabelSelector = &metav1.LabelSelector{MatchLabels: labels} // As the operator does.
		}
		spread = append(spread, c)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders-db-0", Labels: labels},
		Spec: corev1.PodSpec{
			Containers:                []corev1.Container{{Name: "postgres", Image: "postgres", Resources: spec.Resources}},
			NodeSelector:              spec.NodeSelector,
			Tolerations:               spec.Tolerations,
			TopologySpreadConstraints: spread,
			Affinity:                  spec.Affinity,
		},
	}
}
