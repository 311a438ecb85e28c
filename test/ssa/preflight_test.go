package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

// makeQuota makes a quota, which is in force once the world has counted what is there.
func makeQuota(t testing.TB, namespace string, hard map[corev1.ResourceName]string) *corev1.ResourceQuota {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limit"}}
	q.Spec.Hard = corev1.ResourceList{}
	for name, limit := range hard {
		q.Spec.Hard[name] = resource.MustParse(limit)
	}
	create(t, q)
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, namespace, q.Name, &corev1.ResourceQuota{})
		if err == nil && len(live.Status.Used) != len(hard) {
			err = errors.New("the quota is not counted")
		}
		return err
	})
	return q
}

func raise(t testing.TB, q *corev1.ResourceQuota, name corev1.ResourceName, limit string) {
	t.Helper()
	edit(t, q, func() { q.Spec.Hard[name] = resource.MustParse(limit) })
}

// makePolicy makes a policy that refuses pods of one namespace with an image that begins so, and waits for it.
func makePolicy(t testing.TB, namespace, image string) client.Object {
	t.Helper()
	name := "no-" + namespace
	match := &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	create(t, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match,
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("object.spec.containers.all(c, !c.image.startsWith(%q))", image),
				Message:    "use the images of the house", Reason: new(metav1.StatusReasonForbidden),
			}},
		},
	})
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	create(t, binding)
	t.Cleanup(func() { _ = client.IgnoreNotFound(plane.Client.Delete(context.Background(), binding)) })
	controlplane.Eventually(t, func(ctx context.Context) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
		if err := plane.Client.Create(ctx, pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy is not in force: %w", err)
		}
		return nil
	})
	return binding
}

// TestNothingIsMadeOfWhatIsRefused: the answer comes before the first object, and goes away by itself.
func TestNothingIsMadeOfWhatIsRefused(t *testing.T) {
	t.Parallel() // Most of the time is waiting until it is asked again.
	tests := map[string]struct {
		// prepare makes what stands in the way and returns what takes it away.
		prepare func(t testing.TB, namespace string) (mend func())
		reason  string
		words   []string
		// requests of each instance, if any.
		requests corev1.ResourceList
	}{
		"quota of pods": {
			func(t testing.TB, namespace string) func() {
				q := makeQuota(t, namespace, map[corev1.ResourceName]string{"pods": "0"})
				return func() { remove(t, q) }
			}, v1alpha1.ReasonQuotaExceeded, []string{`Pod "orders-0"`, "exceeded quota: limit", "nothing of the cluster is made"}, nil,
		},
		"quota that takes two pods of three": {
			func(t testing.TB, namespace string) func() {
				q := makeQuota(t, namespace, map[corev1.ResourceName]string{"pods": "2"})
				return func() { raise(t, q, "pods", "3") }
			}, v1alpha1.ReasonQuotaExceeded, []string{"exceeded quota: limit", "requested: pods=3, used: pods=0, limited: pods=2"}, nil,
		},
		"quota that takes two volumes of three": {
			func(t testing.TB, namespace string) func() {
				q := makeQuota(t, namespace, map[corev1.ResourceName]string{"requests.storage": "59Gi"})
				return func() { raise(t, q, "requests.storage", "60Gi") }
			}, v1alpha1.ReasonQuotaExceeded, []string{"PersistentVolumeClaim", "exceeded quota: limit", "requests.storage=60Gi"}, nil,
		},
		"quota that wants resources": {
			func(t testing.TB, namespace string) func() {
				q := makeQuota(t, namespace, map[corev1.ResourceName]string{"requests.memory": "10Gi"})
				return func() { remove(t, q) }
			}, v1alpha1.ReasonQuotaExceeded, []string{"failed quota: limit", "must specify requests.memory"}, nil,
		},
		"limit range": {
			func(t testing.TB, namespace string) func() {
				limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}}
				limits.Spec.Limits = []corev1.LimitRangeItem{{
					Type: corev1.LimitTypePersistentVolumeClaim,
					Max:  corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				}}
				create(t, limits)
				return func() { remove(t, limits) }
			}, v1alpha1.ReasonQuotaExceeded, []string{"data-orders-0", "maximum storage usage", "LimitRange small"}, nil,
		},
		"limit range that gives containers a limit": {
			func(t testing.TB, namespace string) func() {
				limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}}
				limits.Spec.Limits = []corev1.LimitRangeItem{{
					Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
				}}
				create(t, limits)
				return func() { remove(t, limits) }
			}, v1alpha1.ReasonQuotaExceeded,
			[]string{"orders-0", "must be less than or equal to memory limit of 1Gi", "LimitRange small"},
			corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
		},
		"policy": {
			func(t testing.TB, namespace string) func() {
				binding := makePolicy(t, namespace, "postgres:17")
				return func() { remove(t, binding) }
			}, v1alpha1.ReasonForbidden, []string{"Pod", "no-test-", "use the images of the house"}, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			world.Start(t, plane, namespace)
			mend := test.prepare(t, namespace)
			startOperator(t, namespace)
			c := cluster(namespace, "orders", 3)
			c.Spec.Resources.Requests = test.requests
			create(t, c)
			stalled(t, c, test.reason, test.words...)
			for object := range versions(t, namespace) {
				// A policy may be about ServiceAccounts, so it is asked again with the cluster's own.
				if !strings.Contains(object, "ServiceAccount") || test.reason != v1alpha1.ReasonForbidden {
					t.Errorf("%s was made", object)
				}
			}
			mend()
			awaitReady(t, c)
		})
	}
}

// TestPodSecurityTakesOurPods: the pods are of the strictest profile, so no label of a namespace refuses them.
func TestPodSecurityTakesOurPods(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"privileged", "baseline", "restricted"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			edit(t, object, func() { object.Labels["pod-security.kubernetes.io/enforce"] = level })
			world.Start(t, plane, namespace)
			startOperator(t, namespace)
			c := cluster(namespace, "orders", 1)
			create(t, c)
			awaitReady(t, c)
		})
	}
}

// untouched checks that nothing of a running cluster was replaced.
func untouched(t testing.TB, c *v1alpha1.PostgresCluster, do func()) {
	t.Helper()
	set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	pods := podUIDs(t, c)
	do()
	if after := podUIDs(t, c); !maps.Equal(pods, after) {
		t.Errorf("pods %v became %v", pods, after)
	}
	after, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil || after.UID != set.UID || after.Generation != set.Generation {
		t.Errorf("the StatefulSet changed from %s/%d to %s/%d: %v", set.UID, set.Generation, after.UID, after.Generation, err)
	}
}

// TestRunningPodsOutliveARefusal: a roll that the API server would not finish does not begin, and what else there is to do
// goes on.
func TestRunningPodsOutliveARefusal(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 2)
	binding := makePolicy(t, c.Namespace, "postgres:new")
	untouched(t, c, func() {
		edit(t, c, func() { c.Spec.Image = "postgres:new" })
		stalled(t, c, v1alpha1.ReasonForbidden, "orders-1", "no-"+c.Namespace, "use the images of the house", "stay as they are")
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "orders-r"}}
		edit(t, service, func() { service.Spec.Selector = map[string]string{"a": "b"} })
		controlplane.Eventually(t, func(ctx context.Context) error {
			live, err := get(ctx, c.Namespace, service.Name, &corev1.Service{})
			if err == nil && live.Spec.Selector["a"] != "" {
				err = errors.New("the Service is not put right")
			}
			return err
		})
		quiet(t, c.Namespace)
	})
	remove(t, binding)
	awaitReady(t, c)
	pod, err := get(t.Context(), c.Namespace, "orders-0", &corev1.Pod{})
	if err != nil || pod.Spec.Containers[0].Image != "postgres:new" {
		t.Errorf("the roll did not go on: %v", err)
	}
}

// TestFullQuotaDoesNotStopARoll: a pod that takes another one's place needs no room of its own, but what it needs more.
func TestFullQuotaDoesNotStopARoll(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	world.Start(t, plane, namespace)
	q := makeQuota(t, namespace, map[corev1.ResourceName]string{"pods": "2", "requests.cpu": "1", "requests.storage": "40Gi"})
	startOperator(t, namespace)
	c := cluster(namespace, "orders", 2)
	cpu := func(quantity string) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	cpu("500m")
	create(t, c)
	awaitReady(t, c)
	edit(t, c, func() { c.Spec.Image = "postgres:new" })
	awaitReady(t, c)
	untouched(t, c, func() {
		edit(t, c, func() { cpu("600m") })
		stalled(t, c, v1alpha1.ReasonQuotaExceeded, "exceeded quota: limit, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1")
		quiet(t, namespace)
	})
	raise(t, q, "requests.cpu", "1200m")
	awaitReady(t, c)
	edit(t, c, func() { cpu("400m") })
	awaitReady(t, c)
}

func TestGrowthBeyondAQuota(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 2)
	q := makeQuota(t, c.Namespace, map[corev1.ResourceName]string{"requests.storage": "45Gi"})
	untouched(t, c, func() {
		// There is room for one of the two.
		edit(t, c, func() { c.Spec.Storage = "24Gi" })
		stalled(t, c, v1alpha1.ReasonQuotaExceeded, "exceeded quota: limit", "requests.storage=8Gi")
		quiet(t, c.Namespace)
		for _, name := range []string{"data-orders-0", "data-orders-1"} {
			claim, err := get(t.Context(), c.Namespace, name, &corev1.PersistentVolumeClaim{})
			if err != nil || claim.Spec.Resources.Requests.Storage().String() != "20Gi" {
				t.Errorf("%s has grown: %v", name, err)
			}
		}
	})
	raise(t, q, "requests.storage", "48Gi")
	awaitReady(t, c)
}

func TestScaleUpBeyondAQuota(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	q := makeQuota(t, c.Namespace, map[corev1.ResourceName]string{"pods": "2"})
	untouched(t, c, func() {
		three := int32(3)
		edit(t, c, func() { c.Spec.Replicas = &three })
		stalled(t, c, v1alpha1.ReasonQuotaExceeded, "exceeded quota: limit, requested: pods=2, used: pods=1, limited: pods=2")
		quiet(t, c.Namespace)
		if _, err := get(t.Context(), c.Namespace, "data-orders-1", &corev1.PersistentVolumeClaim{}); err == nil {
			t.Error("a volume was made without its pod")
		}
	})
	raise(t, q, "pods", "3")
	awaitReady(t, c)
}

// TestWithoutTheRightToAsk: the right to create pods serves the question alone, so it may be taken away.
func TestWithoutTheRightToAsk(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	poor := poorAccount(t, namespace, "pods", "get", "list", "watch", "patch", "delete")
	world.Start(t, plane, namespace)
	startOperatorWith(t, namespace, func(config *rest.Config, _ *ctrl.Options) { config.Impersonate.UserName = poor })
	c := cluster(namespace, "orders", 2)
	create(t, c)
	awaitReady(t, c)
	edit(t, c, func() { c.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
	awaitReady(t, c)
	pod, err := get(t.Context(), namespace, "orders-0", &corev1.Pod{})
	if err != nil || pod.Spec.NodeSelector["disk"] == "" || pod.Annotations[naming.AnnotationTemplateHash] == "" {
		t.Errorf("the pods were not rolled: %v", err)
	}
}
