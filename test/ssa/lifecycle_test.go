package ssa_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

func storageRequest(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func podUIDs(t testing.TB, c *v1alpha1.PostgresCluster) map[string]types.UID {
	t.Helper()
	pods := &corev1.PodList{}
	if err := plane.Client.List(t.Context(), pods, client.InNamespace(c.Namespace),
		client.MatchingLabels{naming.LabelCluster: c.Name}); err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	for _, pod := range pods.Items {
		uids[pod.Name] = pod.UID
	}
	return uids
}

func TestStorageGrowsWithoutTouchingPods(t *testing.T) {
	t.Parallel()
	c, _, o := converged(t, 2)
	pods := podUIDs(t, c)
	set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	old := set.UID
	edit(t, c, func() { c.Spec.Storage = "30Gi" })
	awaitReady(t, c)
	if set, err = get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{}); err != nil {
		t.Fatal(err)
	}
	if size := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(); size != "30Gi" || set.UID == old {
		t.Errorf("volume claim template %s, StatefulSet re-created: %v", size, set.UID != old)
	}
	for name, uid := range podUIDs(t, c) {
		if pods[name] != uid {
			t.Errorf("pod %s was replaced", name)
		}
	}
	claim, err := get(t.Context(), c.Namespace, "data-orders-1", &corev1.PersistentVolumeClaim{})
	if err != nil || claim.Spec.Resources.Requests.Storage().String() != "30Gi" {
		t.Errorf("claim %v: %v", claim.Spec.Resources.Requests, err)
	}

	// A crash after the StatefulSet was deleted and before it was made anew.
	o.stop()
	plane.Kubectl(t, "delete", "statefulset", c.Name, "-n", c.Namespace, "--cascade=orphan")
	startOperator(t, c.Namespace)
	controlplane.Eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, c.Namespace, c.Name, &appsv1.StatefulSet{})
		return err
	})
	awaitReady(t, c)
	for name, uid := range podUIDs(t, c) {
		if pods[name] != uid {
			t.Errorf("pod %s was replaced", name)
		}
	}
}

func TestStorageThatCannotGrow(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	world.Start(t, plane, namespace)
	startOperator(t, namespace)
	c := cluster(namespace, "orders", 1)
	rigid := "rigid"
	c.Spec.StorageClassName = &rigid
	create(t, c)
	awaitReady(t, c)
	edit(t, c, func() { c.Spec.Storage = "30Gi" })
	condition := awaitCondition(t, c, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonResizeRefused)
	if !strings.Contains(condition.Message, "data-orders-0") {
		t.Error(condition.Message)
	}
	edit(t, c, func() { c.Spec.Storage = "20Gi" })
	awaitReady(t, c)
}

func TestScaleDownMovesThePrimary(t *testing.T) {
	t.Parallel()
	c, w, _ := converged(t, 3)
	w.With(func() {
		w.Primary[c.Name], w.Stubborn = world.Leader{Instance: "orders-2", Term: 2}, true
		for _, name := range []string{"orders-0", "orders-1"} {
			w.Reports[name] = func(r *contract.Report) { r.State = contract.StateNotStreaming }
		}
	})
	awaitPrimary(t, c, "orders-2")
	plane.Kubectl(t, "scale", "pgc", c.Name, "-n", c.Namespace, "--replicas=2")
	condition := awaitCondition(t, c, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonScaleDownBlocked)
	if !strings.Contains(condition.Message, "orders-2") || !strings.Contains(condition.Message, "orders-0 does not stream") {
		t.Error(condition.Message)
	}
	w.With(func() { clear(w.Reports) })
	awaitCondition(t, c, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonSwitchingOver)
	if set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{}); err != nil || *set.Spec.Replicas != 3 {
		t.Fatalf("replicas %d: %v", *set.Spec.Replicas, err)
	}
	if members := agentsConfig(t, c).Members; len(members) != 3 {
		t.Errorf("members %v while the primary is to be moved", members)
	}
	w.With(func() { w.Stubborn = false })
	awaitReady(t, c)
	awaitPrimary(t, c, "orders-0")
	if set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{}); err != nil || *set.Spec.Replicas != 2 {
		t.Errorf("replicas %d: %v", *set.Spec.Replicas, err)
	}
	if config := agentsConfig(t, c); len(config.Members) != 2 || len(config.Orders) > 0 {
		t.Errorf("members %v, orders %v", config.Members, config.Orders)
	}
	if _, err := get(t.Context(), c.Namespace, "data-orders-2", &corev1.PersistentVolumeClaim{}); err != nil {
		t.Errorf("the volume of the removed instance: %v", err)
	}
}

func TestPausedChangesNothing(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	edit(t, c, func() { c.Spec.Paused = true })
	awaitCondition(t, c, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused)
	awaitReady(t, c) // Its instances are what the spec says.
	quiet(t, c.Namespace)
	before := versions(t, c.Namespace)
	replicas := int32(3)
	edit(t, c, func() { c.Spec.Replicas = &replicas })
	plane.Kubectl(t, "label", "service", "orders-ro", "-n", c.Namespace, "example.com/note=x")
	awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	quiet(t, c.Namespace)
	wantUnchanged(t, c.Namespace, before, "orders-ro")
	edit(t, c, func() { c.Spec.Paused = false })
	awaitReady(t, c)
}

func TestCredentialsAreKeptAndComeBack(t *testing.T) {
	t.Parallel()
	c, w, o := converged(t, 1)
	secret, err := get(t.Context(), c.Namespace, "orders-app", &corev1.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"host", "port", "dbname", "username", "password", "uri", "jdbc-uri", "pgpass", "type", "provider"} {
		if len(secret.Data[key]) == 0 {
			t.Errorf("no %s in the Secret", key)
		}
	}
	password := secret.Data["password"]
	o.stop()
	startOperator(t, c.Namespace) // It remembers nothing.
	awaitReady(t, c)
	quiet(t, c.Namespace)
	if secret, err = get(t.Context(), c.Namespace, "orders-app", secret); err != nil || !bytes.Equal(secret.Data["password"], password) {
		t.Errorf("the password changed: %v", err)
	}
	// A lost Secret or Lease shows in an instance that is not ready.
	for _, object := range []client.Object{secret, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}} {
		if err := plane.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.With(func() { w.Broken["orders-0"] = true })
	controlplane.Eventually(t, func(ctx context.Context) error {
		if _, err := get(ctx, c.Namespace, "orders-app", &corev1.Secret{}); err != nil {
			return err
		}
		_, err := get(ctx, c.Namespace, c.Name, &coordinationv1.Lease{})
		return err
	})
}

func TestDeletionAppliesNothing(t *testing.T) {
	t.Parallel()
	c, w, _ := converged(t, 1)
	plane.Kubectl(t, "delete", "pgc", c.Name, "-n", c.Namespace, "--cascade=foreground", "--wait=false")
	awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting)
	w.With(func() { w.Frozen = true })
	collect(t, c.Namespace, c.UID)
	quiet(t, c.Namespace)
	for _, object := range childrenOf(t, c.Namespace) {
		if metav1.IsControlledBy(object, c) {
			t.Errorf("%T %s came back", object, object.GetName())
		}
	}
	if _, err := get(t.Context(), c.Namespace, "data-orders-0", &corev1.PersistentVolumeClaim{}); err != nil {
		t.Errorf("the volume is not kept: %v", err)
	}
	edit(t, c, func() { c.Finalizers = nil })
	controlplane.Eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the cluster is still there: %w", err)
		}
		return nil
	})
	// A new cluster of the name adopts the volume and knows whose data is in it.
	w.With(func() { w.Frozen = false })
	again := cluster(c.Namespace, c.Name, 1)
	create(t, again)
	awaitReady(t, again)
	config, err := get(t.Context(), c.Namespace, "orders-instance", &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	var known contract.Config
	if err := json.Unmarshal([]byte(config.Data[naming.ConfigMapKey]), &known); err != nil || known.SystemID != w.SystemID {
		t.Errorf("system identifier %q, want %q: %v", known.SystemID, w.SystemID, err)
	}
}

func TestRollsOneAtATimeThePrimaryLast(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 3)
	watcher, err := plane.Client.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(c.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan []string, 1)
	go func() {
		var deleted []string
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted {
				deleted = append(deleted, pod.Name)
			}
		}
		restarted <- deleted
	}()
	edit(t, c, func() {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	})
	awaitReady(t, c)
	watcher.Stop()
	want := "orders-2 orders-1 orders-0"
	if deleted := <-restarted; strings.Join(deleted, " ") != want {
		t.Errorf("restarted %v, want %s", deleted, want)
	}
}

func TestMajorVersionOfDataIsKept(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	pods := podUIDs(t, c)
	edit(t, c, func() { c.Spec.Version, c.Spec.UpgradePolicy = "18", v1alpha1.UpgradePolicyAllowMajor })
	awaitCondition(t, c, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMajorUpgradePending)
	quiet(t, c.Namespace)
	set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil || set.Spec.Template.Spec.Containers[0].Image != "postgres:17" {
		t.Errorf("image %s: %v", set.Spec.Template.Spec.Containers[0].Image, err)
	}
	for name, uid := range podUIDs(t, c) {
		if pods[name] != uid {
			t.Errorf("pod %s was replaced", name)
		}
	}
}

func TestOrderToRestartForSettings(t *testing.T) {
	t.Parallel()
	c, w, _ := converged(t, 2)
	pods := podUIDs(t, c)
	pending := func(r *contract.Report) { r.PendingRestart = []string{"max_connections"} }
	w.With(func() {
		w.Reports["orders-0"], w.Reports["orders-1"] = pending, pending
	})
	for _, instance := range []string{"orders-1", "orders-0"} {
		var order contract.Order
		controlplane.Eventually(t, func(ctx context.Context) error {
			object, err := get(ctx, c.Namespace, "orders-instance", &corev1.ConfigMap{})
			if err != nil {
				return err
			}
			var config contract.Config
			if err := json.Unmarshal([]byte(object.Data[naming.ConfigMapKey]), &config); err != nil {
				return err
			}
			if len(config.Orders) != 1 || config.Orders[0].Instance != instance {
				return fmt.Errorf("orders %v, want one for %s", config.Orders, instance)
			}
			order = config.Orders[0]
			return nil
		})
		w.With(func() {
			w.Reports[instance] = func(r *contract.Report) { r.LastOrder = order.ID }
		})
	}
	awaitReady(t, c)
	for name, uid := range podUIDs(t, c) {
		if pods[name] != uid {
			t.Errorf("pod %s was replaced", name)
		}
	}
}
