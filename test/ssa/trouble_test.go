package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

// stalled waits for a trouble and checks that its message names all that helps.
func stalled(t testing.TB, c *v1alpha1.PostgresCluster, reason string, words ...string) {
	t.Helper()
	condition := awaitCondition(t, c, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason)
	for _, word := range words {
		if !strings.Contains(condition.Message, word) {
			t.Errorf("the message does not say %q: %s", word, condition.Message)
		}
	}
	awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
}

func TestMissingStorageClass(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	startOperator(t, namespace)
	c := cluster(namespace, "orders", 1)
	class := "class-of-" + namespace
	c.Spec.StorageClassName = &class
	create(t, c)
	stalled(t, c, v1alpha1.ReasonStorageClassMissing, class, "data-orders-0")
	create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "example.com/disk"})
	world.Start(t, plane, namespace)
	awaitReady(t, c)
}

func TestQuotaOnVolumes(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("1Gi")}},
	}
	create(t, quota)
	// No controller counts here.
	quota.Status = corev1.ResourceQuotaStatus{
		Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("0")},
	}
	if err := plane.Client.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	world.Start(t, plane, namespace)
	startOperator(t, namespace)
	c := cluster(namespace, "orders", 1)
	create(t, c)
	stalled(t, c, v1alpha1.ReasonQuotaExceeded, "data-orders-0", "small")
	if _, err := get(t.Context(), namespace, c.Name, &appsv1.StatefulSet{}); err == nil {
		t.Error("the StatefulSet was applied before its volumes")
	}
	if err := plane.Client.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, c)
}

func TestRefusedPods(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ message, reason, word string }{
		"quota": {
			`create Pod orders-0 in StatefulSet orders failed error: pods "orders-0" is forbidden: exceeded quota: pods-quota, requested: pods=1, used: pods=0, limited: pods=0`,
			v1alpha1.ReasonQuotaExceeded, "pods-quota",
		},
		"limit range": {
			`create Pod orders-0 in StatefulSet orders failed error: pods "orders-0" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi`,
			v1alpha1.ReasonQuotaExceeded, "maximum memory",
		},
		"pod security": {
			`create Pod orders-0 in StatefulSet orders failed error: pods "orders-0" is forbidden: violates PodSecurity "restricted:latest"`,
			v1alpha1.ReasonForbidden, "PodSecurity",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := plane.Namespace(t)
			startOperator(t, namespace)
			c := cluster(namespace, "orders", 1)
			create(t, c)
			var set *appsv1.StatefulSet
			controlplane.Eventually(t, func(ctx context.Context) (err error) {
				set, err = get(ctx, namespace, c.Name, &appsv1.StatefulSet{})
				return err
			})
			set.Status.ObservedGeneration = set.Generation // As its controller does, whether or not it can make pods.
			if err := plane.Client.Status().Update(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			create(t, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders.1"},
				InvolvedObject: corev1.ObjectReference{
					APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: namespace, Name: set.Name, UID: set.UID,
				},
				Type: corev1.EventTypeWarning, Reason: "FailedCreate", Message: test.message, LastTimestamp: metav1.Now(),
			})
			stalled(t, c, test.reason, test.word)
		})
	}
}

func TestPodsThatDoNotStart(t *testing.T) {
	t.Parallel()
	waiting := func(container, reason, message string) corev1.PodStatus {
		status := []corev1.ContainerStatus{{
			Name: container, Image: "x", ImageID: "x",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
		if container == naming.ContainerInstall {
			return corev1.PodStatus{InitContainerStatuses: status}
		}
		return corev1.PodStatus{ContainerStatuses: status}
	}
	tests := map[string]struct {
		status corev1.PodStatus
		reason string
		word   string
	}{
		"unschedulable": {corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/3 nodes are available: 3 Insufficient memory.",
		}}}, v1alpha1.ReasonUnschedulable, "Insufficient memory"},
		"image": {
			waiting(naming.ContainerPostgres, "ImagePullBackOff", "Back-off pulling image"),
			v1alpha1.ReasonImagePullFailed, `"postgres:17"`,
		},
		"operator's image": {
			waiting(naming.ContainerInstall, "ErrImagePull", "not found"),
			v1alpha1.ReasonImagePullFailed, `"registry.example/pg-operator:test"`,
		},
		"configuration": {
			waiting(naming.ContainerPostgres, "CreateContainerConfigError", `secret "x" not found`),
			v1alpha1.ReasonInstanceFailed, `secret "x" not found`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := plane.Namespace(t)
			w := world.Start(t, plane, namespace)
			startOperator(t, namespace)
			c := cluster(namespace, "orders", 1)
			create(t, c)
			pod := &corev1.Pod{}
			controlplane.Eventually(t, func(ctx context.Context) error {
				_, err := get(ctx, namespace, "orders-0", pod)
				return err
			})
			w.With(func() { w.Frozen = true })
			controlplane.Eventually(t, func(ctx context.Context) error {
				if _, err := get(ctx, namespace, "orders-0", pod); err != nil {
					return err
				}
				pod.Status = test.status
				return plane.Client.Status().Update(ctx, pod)
			})
			stalled(t, c, test.reason, "orders-0", test.word)
		})
	}
}

func TestMissingRights(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	poor := poorAccount(t, namespace, "services", "get", "list", "watch", "patch")
	startOperatorWith(t, namespace, func(config *rest.Config, _ *ctrl.Options) { config.Impersonate.UserName = poor })
	c := cluster(namespace, "orders", 1)
	create(t, c)
	stalled(t, c, v1alpha1.ReasonForbidden, "Service", "create")
}

// TestUnknownSettingIsActedUpon: an older operator may have admitted it, and PostgreSQL copes with it.
func TestUnknownSettingIsActedUpon(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	edit(t, c, func() { c.Spec.Parameters = map[string]string{"work_men": "8MB"} })
	awaitReady(t, c)
	edit(t, c, func() { c.Spec.Parameters["cluster_name"] = "x" })
	stalled(t, c, v1alpha1.ReasonInvalidSpec, "spec.parameters[cluster_name]")
}

func TestTerminatingNamespaceIsLeftAlone(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	c := cluster(namespace, "orders", 1)
	create(t, c)
	plane.Kubectl(t, "delete", "namespace", namespace, "--wait=false")
	startOperator(t, namespace)
	controlplane.Eventually(t, func(context.Context) error {
		if len(requests(t, namespace)) == 0 {
			return errors.New("the operator has not looked at the cluster")
		}
		return nil
	})
	quiet(t, namespace)
	calls := requests(t, namespace)
	if len(calls) > 4 {
		t.Errorf("%d calls in a terminating namespace:\n%s", len(calls), summarise(calls))
	}
	if _, err := get(t.Context(), namespace, c.Name, &appsv1.StatefulSet{}); err == nil {
		t.Error("a StatefulSet in a terminating namespace")
	}
	if err := plane.Client.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestReadyIsOnlyOfARolledOutGeneration(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 2)
	watcher, err := plane.Client.Watch(t.Context(), &v1alpha1.PostgresClusterList{}, client.InNamespace(c.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	lies := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			live, ok := event.Object.(*v1alpha1.PostgresCluster)
			if !ok {
				continue
			}
			for _, condition := range live.Status.Conditions {
				if condition.Type != v1alpha1.ConditionReady || condition.Status != metav1.ConditionTrue ||
					condition.ObservedGeneration != live.Generation {
					continue
				}
				if *live.Status.ReadyReplicas != *live.Spec.Replicas {
					lies <- fmt.Sprintf("Ready in generation %d with %d of %d instances", live.Generation,
						*live.Status.ReadyReplicas, *live.Spec.Replicas)
				}
				set := &appsv1.StatefulSet{}
				if plane.Client.Get(context.Background(), client.ObjectKeyFromObject(live), set) == nil &&
					set.Annotations[naming.AnnotationGeneration] < fmt.Sprint(live.Generation) {
					lies <- fmt.Sprintf("Ready in generation %d with a StatefulSet of generation %s", live.Generation,
						set.Annotations[naming.AnnotationGeneration])
				}
			}
		}
	}()
	for _, replicas := range []int32{3, 1, 2} {
		edit(t, c, func() {
			c.Spec.Replicas = &replicas
			c.Spec.Parameters = map[string]string{"work_mem": fmt.Sprintf("%dMB", replicas)}
		})
		awaitReady(t, c)
	}
	watcher.Stop()
	<-done
	close(lies)
	for lie := range lies {
		t.Error(lie)
	}
}
