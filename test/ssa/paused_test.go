package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
)

// TestRetainIsObeyedWhilePaused: volumes that go with the cluster are let go by a change of the policy alone.
func TestRetainIsObeyedWhilePaused(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	owned := func(want bool) {
		t.Helper()
		controlplane.Eventually(t, func(ctx context.Context) error {
			claim, err := get(ctx, c.Namespace, "data-orders-0", &corev1.PersistentVolumeClaim{})
			if err == nil && metav1.IsControlledBy(claim, c) != want {
				err = errors.New("the claim has the wrong owners")
			}
			return err
		})
	}
	edit(t, c, func() { c.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete })
	owned(true)
	edit(t, c, func() { c.Spec.Paused = true })
	awaitCondition(t, c, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused)
	edit(t, c, func() { c.Spec.DeletionPolicy, c.Spec.Storage = v1alpha1.DeletionPolicyRetain, "30Gi" })
	owned(false)
	quiet(t, c.Namespace)
	claim, err := get(t.Context(), c.Namespace, "data-orders-0", &corev1.PersistentVolumeClaim{})
	if err != nil || claim.Spec.Resources.Requests.Storage().String() != "20Gi" || claim.Annotations[naming.AnnotationSystemID] == "" {
		t.Errorf("the claim changed while paused: %v %v: %v", claim.Spec.Resources.Requests, claim.Annotations, err)
	}
}

// TestGenerationThatLiesIsTakenBack: the annotation by which a cache that is behind is known is nobody else's.
func TestGenerationThatLiesIsTakenBack(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	plane.Kubectl(t, "annotate", "sts", c.Name, "-n", c.Namespace, naming.AnnotationGeneration+"=999", "--overwrite")
	replicas := int32(2)
	edit(t, c, func() { c.Spec.Replicas = &replicas })
	awaitReady(t, c)
	set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if want := fmt.Sprint(c.Generation); err != nil || set.Annotations[naming.AnnotationGeneration] != want {
		t.Errorf("generation %q, want %s: %v", set.Annotations[naming.AnnotationGeneration], want, err)
	}
}
