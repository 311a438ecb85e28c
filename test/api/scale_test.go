package api

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestScale drives /scale, whose requests no webhook sees: the schema alone must hold.
func TestScale(t *testing.T) {
	webhooks := serveWebhooks(t)
	webhooks.Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{storage: 20Gi}`))
	patchStatus(t, namespace, `{"replicas":1,"selector":"db.example.com/cluster=orders-db"}`)

	t.Run("kubectl scale", func(t *testing.T) {
		plane.Kubectl(t, "scale", "pgc", "orders-db", "-n", namespace, "--replicas=3")
		for _, replicas := range []string{"0", "6", "9"} {
			out := plane.TryKubectl(t, "", "scale", "pgc", "orders-db", "-n", namespace, "--replicas="+replicas)
			if out.Code == 0 || !strings.Contains(out.Stderr, "is invalid: spec.replicas: Invalid value: "+replicas) {
				t.Errorf("--replicas=%s: exit code %d: %s", replicas, out.Code, out.Stderr)
			}
		}
	})
	t.Run("as an autoscaler does", func(t *testing.T) {
		target := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders-db"}}
		scale := &autoscalingv1.Scale{}
		if err := plane.Client.SubResource("scale").Get(t.Context(), target, scale); err != nil {
			t.Fatal(err)
		}
		if scale.Spec.Replicas != 3 || scale.Status.Replicas != 1 || scale.Status.Selector != "db.example.com/cluster=orders-db" {
			t.Errorf("scale %+v %+v", scale.Spec, scale.Status)
		}
		scale.Spec.Replicas = 7
		err := plane.Client.SubResource("scale").Update(t.Context(), target, client.WithSubResourceBody(scale))
		if !apierrors.IsInvalid(err) {
			t.Errorf("7 replicas: %v, want 422", err)
		}
		scale.Spec.Replicas = 5
		if err := plane.Client.SubResource("scale").Update(t.Context(), target, client.WithSubResourceBody(scale)); err != nil {
			t.Errorf("5 replicas: %v", err)
		}
	})
	t.Run("paused, and while it is being deleted", func(t *testing.T) {
		if err := patch(t, namespace, `{"metadata":{"finalizers":["example.com/x"]},"spec":{"paused":true}}`); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			out := plane.TryKubectl(t, "", "scale", "pgc", "orders-db", "-n", namespace, "--replicas=9")
			if out.Code == 0 || !strings.Contains(out.Stderr, "spec.replicas: Invalid value: 9") {
				t.Errorf("9 replicas: exit code %d: %s", out.Code, out.Stderr)
			}
			plane.Kubectl(t, "scale", "pgc", "orders-db", "-n", namespace, "--replicas=2")
			plane.Kubectl(t, "delete", "pgc", "orders-db", "-n", namespace, "--wait=false")
		}
		if err := patch(t, namespace, `{"metadata":{"finalizers":null}}`); err != nil {
			t.Error(err)
		}
	})
	t.Run("of a cluster without replicas", func(t *testing.T) {
		u := object(t, namespace, "empty", "{}")
		delete(u.Object, "spec")
		if err := plane.Client.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		target := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "empty"}}
		scale := &autoscalingv1.Scale{}
		if err := plane.Client.SubResource("scale").Get(t.Context(), target, scale); err != nil || scale.Spec.Replicas != 1 {
			t.Errorf("scale %+v, %v", scale.Spec, err)
		}
	})
}
