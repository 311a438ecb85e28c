package ssa_test

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/controlplane"
)

// TestLostLeaseAtRest: all instances are ready, so nothing but an agent's report tells of the loss.
func TestLostLeaseAtRest(t *testing.T) {
	t.Parallel()
	c, w, _ := converged(t, 1)
	quiet(t, c.Namespace)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	if err := plane.Client.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	w.With(func() { w.Reports["orders-0"] = func(r *contract.Report) { r.LeaseMissing = true } })
	controlplane.Eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, c.Namespace, c.Name, lease)
		return err
	})
}
