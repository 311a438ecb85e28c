// Package quota counts what pods and volume claims take of a namespace's
// ResourceQuotas, as the API server does when they are created. It is pure.
//
// A dry run tells of one object. This package tells of several at once, and of
// a pod that takes another one's place.
package quota

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Demand is what is to be made, less what goes before.
type Demand struct {
	// Pod is such as those to be made; nil for none. Pods is how many of it.
	Pod  *corev1.Pod
	Pods int64
	// Freed is the pod that goes before; nil for none.
	Freed *corev1.Pod
	// Claims is what all volume claims take, or more than before where they grow.
	Claims corev1.ResourceList
}

// Exceeded tells, as the API server would, of the first quota by name that a demand exceeds; empty when there is none.
// A quota that nobody has counted yet says nothing here.
func Exceeded(quotas []*corev1.ResourceQuota, d *Demand) string {
	quotas = slices.Clone(quotas)
	slices.SortFunc(quotas, func(a, b *corev1.ResourceQuota) int { return strings.Compare(a.Name, b.Name) })
	for _, q := range quotas {
		if text := exceeded(q, d); text != "" {
			return text
		}
	}
	return ""
}

func exceeded(q *corev1.ResourceQuota, d *Demand) string {
	requested, freed := corev1.ResourceList{}, corev1.ResourceList{}
	if d.Pod != nil && matches(q, d.Pod) {
		for range d.Pods {
			Add(requested, Pod(d.Pod))
		}
	}
	if d.Freed != nil && matches(q, d.Freed) {
		freed = Pod(d.Freed)
	}
	if len(scopes(q)) == 0 {
		Add(requested, d.Claims)
	}
	return compare(q.Name, requested, freed, q.Status.Used, q.Status.Hard)
}

// compare tells of the resources of which more is requested than is left once something was freed.
func compare(name string, requested, freed, used, hard corev1.ResourceList) string {
	var over []corev1.ResourceName
	others := corev1.ResourceList{}
	for resourceName, limit := range hard {
		wanted := requested[resourceName]
		if wanted.Sign() <= 0 {
			continue
		}
		rest := used[resourceName].DeepCopy()
		rest.Sub(freed[resourceName])
		sum := rest.DeepCopy()
		sum.Add(wanted)
		if sum.Cmp(limit) > 0 {
			over = append(over, resourceName)
			others[resourceName] = rest
		}
	}
	if len(over) == 0 {
		return ""
	}
	slices.Sort(over)
	list := func(values corev1.ResourceList) string {
		var parts []string
		for _, resourceName := range over {
			value := values[resourceName]
			parts = append(parts, fmt.Sprintf("%s=%s", resourceName, value.String()))
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", name, list(requested), list(others), list(hard))
}

// answer matches what the API server says of the first quota that an object exceeds.
var answer = regexp.MustCompile(`exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)`)

// ExceededInPlace tells whether a pod still exceeds a quota once another one, whose place it takes, is gone. refusal is
// what the API server says while both are counted: it knows what admission has added to the pod, but names one quota
// only. The others are counted here, with a pod to which was added what was added to the old one.
func ExceededInPlace(quotas []*corev1.ResourceQuota, refusal string, pod, old *corev1.Pod) string {
	parts := answer.FindStringSubmatch(refusal)
	if parts == nil {
		return refusal
	}
	requested, ok1 := parse(parts[2])
	used, ok2 := parse(parts[3])
	hard, ok3 := parse(parts[4])
	if !ok1 || !ok2 || !ok3 {
		return refusal
	}
	freed := Pod(old)
	if slices.ContainsFunc(quotas, func(q *corev1.ResourceQuota) bool { return q.Name == parts[1] && !matches(q, old) }) {
		freed = nil
	}
	if text := compare(parts[1], requested, freed, used, hard); text != "" {
		return text
	}
	return Exceeded(quotas, &Demand{Pod: likely(pod, old), Pods: 1, Freed: old})
}

func parse(text string) (corev1.ResourceList, bool) {
	list := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, false
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, true
}

// likely is a pod with what admission will probably add: containers, and resources where it names none, as it did to
// the pod before.
func likely(pod, old *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Containers = merge(pod.Spec.Containers, old.Spec.Containers)
	pod.Spec.InitContainers = merge(pod.Spec.InitContainers, old.Spec.InitContainers)
	pod.Spec.Overhead, pod.Spec.PriorityClassName = old.Spec.Overhead, old.Spec.PriorityClassName
	return pod
}

func merge(containers, old []corev1.Container) []corev1.Container {
	for i := range old {
		at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == old[i].Name })
		if at < 0 {
			containers = append(containers, *old[i].DeepCopy())
			continue
		}
		own := &containers[at].Resources
		if len(own.Requests)+len(own.Limits) == 0 {
			old[i].Resources.DeepCopyInto(own)
		}
	}
	return containers
}

// Add adds what another list holds.
func Add(sum, more corev1.ResourceList) {
	for name, value := range more {
		total := sum[name]
		total.Add(value)
		sum[name] = total
	}
}
