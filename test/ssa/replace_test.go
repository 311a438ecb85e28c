package ssa_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/controlplane"
)

// TestCreateOverTerminating replaces a cluster by one of the same name at once, while all that the old one had is still
// there: the new one must not take the old pods' data for its own, or no agent would ever make a database.
func TestCreateOverTerminating(t *testing.T) {
	t.Parallel()
	c, w, o := converged(t, 1)
	edit(t, c, func() { c.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete })
	awaitReady(t, c)
	quiet(t, c.Namespace)
	o.stop()
	w.With(func() { w.Frozen = true })
	old := w.SystemID
	if err := plane.Client.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	again := cluster(c.Namespace, c.Name, 1)
	create(t, again)
	startOperator(t, c.Namespace)
	nothingKnown := func(step string) {
		t.Helper()
		quiet(t, c.Namespace)
		live, err := get(t.Context(), again.Namespace, again.Name, &v1alpha1.PostgresCluster{})
		if err != nil || live.Status.ObservedGeneration == 0 || live.Status.SystemID != "" || live.Status.Version != "" {
			t.Fatalf("%s: status %+v: %v", step, live.Status, err)
		}
	}
	nothingKnown("the old StatefulSet is there")

	collect(t, c.Namespace, c.UID)
	controlplane.Eventually(t, func(ctx context.Context) error {
		set, err := get(ctx, again.Namespace, again.Name, &appsv1.StatefulSet{})
		if err == nil && !metav1.IsControlledBy(set, again) {
			err = errors.New("the StatefulSet is the old one")
		}
		return err
	})
	nothingKnown("the old pods are there")
	object, err := get(t.Context(), again.Namespace, "orders-instance", &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	var config contract.Config
	if err = json.Unmarshal([]byte(object.Data[naming.ConfigMapKey]), &config); err != nil || config.SystemID != "" {
		t.Fatalf("the agents are told to wait for data %q: %v", config.SystemID, err)
	}

	if err = plane.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(c.Namespace)); err != nil {
		t.Fatal(err)
	}
	w.With(func() { w.Frozen, w.SystemID = false, "7300000000000000002" })
	awaitReady(t, again)
	live, err := get(t.Context(), again.Namespace, again.Name, &v1alpha1.PostgresCluster{})
	if err != nil || live.Status.SystemID == old || live.Status.SystemID != w.SystemID {
		t.Errorf("system identifier %q: %v", live.Status.SystemID, err)
	}
}

// collect deletes all that a cluster which is gone controls, for good.
func collect(t testing.TB, namespace string, owner types.UID) {
	t.Helper()
	for _, object := range childrenOf(t, namespace) {
		if controller := metav1.GetControllerOf(object); controller == nil || controller.UID != owner {
			continue
		}
		t.Log("collect", fmt.Sprintf("%T", object), object.GetName())
		remove(t, object)
	}
}
