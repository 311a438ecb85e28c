package reconciler

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/quota"
	"github.com/acme/pg-operator/reconciler/render"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// verdict is what a preflight ends with.
type verdict int

const (
	// cleared: the plan may be carried out.
	cleared verdict = iota
	// held: no pod or volume may be made, and no running pod be touched.
	held
	// withheld: nothing of the cluster may be made yet.
	withheld
)

// preflight is one question to the API server, before anything is made or disturbed: whether it would take the pods and
// volumes that the plan leads to. Other controllers would learn that only when it is too late to go back.
type preflight struct {
	*Reconciler
	s    *snapshot.Cluster
	pass *apply.Pass
	set  *appsv1ac.StatefulSetApplyConfiguration
	need decide.Preflight
}

// preflight records what the API server refuses, with what follows of it.
func (r *Reconciler) preflight(
	ctx context.Context, s *snapshot.Cluster, plan decide.Plan, intents []apply.Intent, pass *apply.Pass,
) (verdict, error) {
	set, ok := intents[len(intents)-1].Object.(*appsv1ac.StatefulSetApplyConfiguration)
	if !ok || r.options.NoPreflight {
		return cleared, nil
	}
	c := preflight{Reconciler: r, s: s, pass: pass, set: set}
	c.need = plan.Preflight(s, set.Spec.Template.Annotations[naming.AnnotationTemplateHash])
	if !c.need.Needed() {
		return cleared, nil
	}
	c.dropSent(intents, plan.Restart != nil)
	failure, err := c.ask(ctx, intents[0])
	if err != nil || failure == nil {
		return cleared, err
	}
	pass.Result.Fail(failure.Key, *failure)
	if c.need.First {
		return withheld, nil
	}
	return held, nil
}

// dropSent leaves out what was sent to the API server in an earlier pass and is only not in the cache yet: quotas count it
// already.
func (c *preflight) dropSent(intents []apply.Intent, restart bool) {
	for _, intent := range intents {
		switch object := intent.Object.(type) {
		case *corev1ac.PersistentVolumeClaimApplyConfiguration:
			if c.pass.Sent(intent) {
				c.need.Drop(c.s, *object.Name)
			}
		case *appsv1ac.StatefulSetApplyConfiguration:
			if c.pass.Sent(intent) {
				c.need.Pods = 0
				if !restart {
					c.need.Replaced = nil
				}
			}
		}
	}
}

// ask is the first thing that is refused; nil when nothing is.
func (c *preflight) ask(ctx context.Context, account apply.Intent) (*outcome.Failure, error) {
	pod, failure, err := c.askPod(ctx, account)
	if err != nil || failure != nil || c.pass.Result.Gone {
		return failure, err
	}
	if failure, err = c.askClaim(ctx); err != nil || failure != nil || c.pass.Result.Gone {
		return failure, err
	}
	// A dry run tells of one object; several together may be too much.
	if c.need.Pods > 0 {
		text := quota.Exceeded(c.s.Quotas, &quota.Demand{Pod: pod, Pods: int64(c.need.Pods)})
		if text != "" {
			return c.refused(outcome.NewKey(corev1.GroupName, "Pod", pod.Name), text), nil
		}
	}
	claims, name := c.claims()
	if text := quota.Exceeded(c.s.Quotas, &quota.Demand{Claims: claims}); text != "" {
		return c.refused(outcome.NewKey(corev1.GroupName, "PersistentVolumeClaim", name), text), nil
	}
	return nil, nil //nolint:nilnil // Nothing is refused.
}

// askPod asks for one pod. Before the cluster's ServiceAccount exists, the namespace's own stands in; should a policy not
// like that, the ServiceAccount is made first, which by itself does nothing.
func (c *preflight) askPod(ctx context.Context, account apply.Intent) (*corev1.Pod, *outcome.Failure, error) {
	if c.need.Pods == 0 && c.need.Replaced == nil {
		return nil, nil, nil
	}
	pod, err := render.Pod(c.s, c.set, c.need.Ordinal)
	if err != nil {
		return nil, nil, err
	}
	if account.Live != nil {
		return c.askFor(ctx, pod)
	}
	standIn := pod.DeepCopy()
	standIn.Spec.ServiceAccountName = ""
	answered, failure, err := c.askFor(ctx, standIn)
	if failure == nil || failure.Class != outcome.ClassForbidden || strings.Contains(failure.Message, "violates PodSecurity") {
		return answered, failure, err
	}
	if c.pass.All(ctx, []apply.Intent{account}); c.pass.Result.Blocked() {
		return answered, failure, err
	}
	return c.askFor(ctx, pod)
}

func (c *preflight) askFor(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, *outcome.Failure, error) {
	rendered := pod.DeepCopy()
	answer := c.put(ctx, apply.Question{
		Key: outcome.NewKey(corev1.GroupName, "Pod", pod.Name), Object: pod,
		Version: pod.Annotations[naming.AnnotationTemplateHash] + "/" + pod.Spec.ServiceAccountName,
	})
	failure := answer.Failure
	if failure != nil && failure.Class == outcome.ClassQuota && c.need.Replaced != nil {
		text := quota.ExceededInPlace(c.s.Quotas, failure.Message, rendered, c.need.Replaced)
		if text == "" {
			return rendered, nil, nil
		}
		failure.Message = text
	}
	if failure != nil {
		return rendered, c.word(failure), nil
	}
	admitted, ok := answer.Object.(*corev1.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("asking for a pod: the answer is a %T", answer.Object)
	}
	return admitted, nil, nil
}

// askClaim asks for one of the volume claims to be made. Those that grow are asked for when they are applied: that
// disturbs nobody when it is refused.
func (c *preflight) askClaim(ctx context.Context) (*outcome.Failure, error) {
	if len(c.need.Claims) == 0 {
		return nil, nil //nolint:nilnil // Nothing is refused.
	}
	wanted := c.need.Claims[0]
	claim, err := render.Claim(c.s, wanted)
	if err != nil {
		return nil, err
	}
	answer := c.put(ctx, apply.Question{
		Key: outcome.NewKey(corev1.GroupName, "PersistentVolumeClaim", claim.Name), Object: claim,
		Version: wanted.Size.String() + "/" + class(wanted.StorageClassName),
	})
	if answer.Failure != nil {
		return c.word(answer.Failure), nil
	}
	return nil, nil //nolint:nilnil // Nothing is refused.
}

// put puts a question to the API server, and logs that it cannot answer.
func (c *preflight) put(ctx context.Context, q apply.Question) apply.Answer {
	q.Around, q.Explain = around(c.s), c.explain
	answer := c.pass.Ask(ctx, q)
	if answer.Unsure != "" {
		log.FromContext(ctx).Info("The API server cannot tell in advance whether it would create an object; going on",
			"kind", q.Key.Kind, "name", q.Key.Name, "answer", answer.Unsure)
	}
	return answer
}

// claims is what all volume claims take together, and the name of one.
func (c *preflight) claims() (sum corev1.ResourceList, name string) {
	sum = corev1.ResourceList{}
	for _, claim := range c.need.Claims {
		quota.Add(sum, quota.Claim(class(claim.StorageClassName), claim.Size))
		name = max(name, c.s.Names().PVC(claim.Ordinal))
	}
	for _, instance := range c.s.Instances {
		if instance.Claim == nil {
			continue
		}
		if by, grows := c.need.Grown[instance.Claim.Name]; grows {
			quota.Add(sum, quota.Growth(class(instance.Claim.Spec.StorageClassName), by))
			name = max(name, instance.Claim.Name)
		}
	}
	return sum, name
}

// explain names the LimitRange, which the API server does not. One that limits containers gives its limit to those that
// name none, which then are invalid if they request more.
func (c *preflight) explain(ctx context.Context, failure *outcome.Failure) {
	invalid := failure.Class == outcome.ClassInvalid && strings.Contains(failure.Message, ".resources.")
	if !invalid && !outcome.LimitRangeText(failure.Message) {
		return
	}
	names, err := c.observer.LimitRanges(ctx, c.s.Object.Namespace)
	if err != nil {
		log.FromContext(ctx).Error(err, "Failed to read which LimitRange refuses an object")
		return
	}
	if len(names) > 0 {
		failure.Class = outcome.ClassQuota
		failure.Message += fmt.Sprintf(" (LimitRange %s)", strings.Join(names, ", "))
	}
}

func (c *preflight) refused(of outcome.Key, text string) *outcome.Failure {
	return c.word(&outcome.Failure{Key: of, Class: outcome.ClassQuota, Message: text})
}

// word says what follows and what to do.
func (c *preflight) word(failure *outcome.Failure) *outcome.Failure {
	worded := *failure
	if worded.Class == outcome.ClassTransient {
		return &worded // It is tried again, and may pass.
	}
	switch worded.Class {
	case outcome.ClassQuota:
		worded.Message += "; raise that limit or ask for less"
	case outcome.ClassForbidden:
		worded.Message += "; change the rule that refuses it, or the spec"
	default:
		worded.Message += "; change the spec"
	}
	if c.need.First {
		worded.Message += ": nothing of the cluster is made before"
	} else {
		worded.Message += ": until then the instances stay as they are"
	}
	return &worded
}

func class(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

// around identifies the quotas that a refusal may be about.
func around(s *snapshot.Cluster) uint64 {
	sum := uint64(0)
	for _, q := range s.Quotas {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(string(q.UID) + q.ResourceVersion))
		sum += hash.Sum64()
	}
	return sum
}
