package api

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	protectName = "protect.postgresclusters.db.example.com"
	// namespaceController deletes what is in a namespace that shall go.
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
)

// installPolicy puts config/policy in force until the test ends.
func installPolicy(t *testing.T) {
	t.Helper()
	probe := object(t, plane.Namespace(t), "probe", `{deletionProtection: true}`)
	if err := plane.Client.Create(t.Context(), probe.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	plane.InstallPolicies(t, func(ctx context.Context) error { return plane.Client.Delete(ctx, probe.DeepCopy(), client.DryRunAll) })
}

// wayOut is what both layers say.
func wayOut(user, namespace string) string {
	return user + " cannot delete PostgresCluster " + namespace + "/orders-db, because its spec.deletionProtection is true; " +
		"to allow it: kubectl patch pgc orders-db -n " + namespace +
		` --type=merge -p '{"spec":{"deletionProtection":false}}'`
}

// deletions are the ways in which a cluster is deleted.
var deletions = map[string]func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error{
	"background": func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
		return c.Delete(ctx, u, client.PropagationPolicy(metav1.DeletePropagationBackground))
	},
	"foreground": func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
		return c.Delete(ctx, u, client.PropagationPolicy(metav1.DeletePropagationForeground))
	},
	"orphan": func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
		return c.Delete(ctx, u, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	},
	"collection": func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
		return c.DeleteAllOf(ctx, u, client.InNamespace(u.GetNamespace()))
	},
	"dry run": func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
		return c.Delete(ctx, u, client.DryRunAll)
	},
}

// TestDeletionProtection proves each layer alone: the webhook without the policy, and the policy with no webhook and
// with one that is dead.
func TestDeletionProtection(t *testing.T) {
	const byWebhook = `admission webhook "` + protectName + `" denied the request: `
	const byPolicy = `ValidatingAdmissionPolicy '` + protectName + `' with binding '` + protectName + `' denied request: `
	for name, layer := range map[string]struct {
		install func(*testing.T)
		says    string
	}{
		"webhook": {func(t *testing.T) { serveWebhooks(t).Install(t) }, byWebhook},
		"policy":  {installPolicy, byPolicy},
		"policy and a dead webhook": {func(t *testing.T) {
			installPolicy(t)
			webhooks := serveWebhooks(t)
			webhooks.Install(t)
			webhooks.Stop(t)
		}, byPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := plane.Namespace(t)
			protected, free := object(t, namespace, "orders-db", `{deletionProtection: true}`), object(t, namespace, "free", `{}`)
			for _, u := range []*unstructured.Unstructured{protected, free} {
				if err := plane.Client.Create(t.Context(), u); err != nil {
					t.Fatal(err)
				}
			}
			layer.install(t)
			user := plane.As(t, "jane", "system:masters")
			for how, remove := range deletions {
				err := remove(t.Context(), user, protected.DeepCopy())
				if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), layer.says+wayOut("jane", namespace)) {
					t.Errorf("%s: %v, want 403 with the way out", how, err)
				}
			}
			err := deletions["collection"](t.Context(), plane.As(t, namespaceController, "system:masters"), protected.DeepCopy())
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), wayOut(namespaceController, namespace)) {
				t.Errorf("the namespace controller is told %v", err)
			}
			if live := get(t, namespace); live.GetDeletionTimestamp() != nil {
				t.Error("the protected cluster is being deleted")
			}
			// Collections above may have taken this one or not.
			if err := user.Delete(t.Context(), free); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete an unprotected cluster: %v", err)
			}
		})
	}
}

// TestDeletionProtectionIsLifted walks through the life of one cluster with both layers.
func TestDeletionProtectionIsLifted(t *testing.T) {
	installPolicy(t)
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3}`))
	mustApply(t, manifest(namespace, `{replicas: 3, deletionProtection: true}`))
	before := plane.WebhookCalls(t)[protectName]
	for _, arguments := range [][]string{{"orders-db"}, {"--all"}, {"orders-db", "--cascade=foreground"}} {
		out := plane.TryKubectl(t, "", append([]string{"delete", "pgc", "-n", namespace, "--wait=false"}, arguments...)...)
		if out.Code == 0 || !strings.HasPrefix(out.Stderr, "Error from server (Forbidden): ") ||
			!strings.Contains(out.Stderr, "--type=merge -p '{\"spec\":{\"deletionProtection\":false}}'") {
			t.Errorf("kubectl delete %s: exit code %d: %s", arguments, out.Code, out.Stderr)
		}
	}
	if after := plane.WebhookCalls(t)[protectName]; after != before {
		t.Errorf("the policy is in force and the webhook was called %d times", after-before)
	}
	if err := patch(t, namespace, `{"metadata":{"finalizers":["example.com/x"]},"spec":{"deletionProtection":false}}`); err != nil {
		t.Fatal(err)
	}
	plane.Kubectl(t, "delete", "pgc", "orders-db", "-n", namespace, "--wait=false")
	// What is being deleted cannot be called back: the switch is only a field now, and nothing that ends the deletion
	// may stumble over it.
	out := plane.TryKubectl(t, "", "patch", "pgc", "orders-db", "-n", namespace, "--type=merge",
		`-p={"spec":{"deletionProtection":true}}`)
	if out.Code != 0 || !strings.Contains(out.Stderr, "Warning: spec.deletionProtection: ") {
		t.Errorf("exit code %d: %s", out.Code, out.Stderr)
	}
	for how, remove := range deletions {
		if err := remove(t.Context(), plane.Client, get(t, namespace)); err != nil {
			t.Errorf("%s: delete again: %v", how, err)
		}
	}
	if err := patch(t, namespace, `{"metadata":{"finalizers":null}}`); err != nil {
		t.Error(err)
	}
	if left := plane.Kubectl(t, "get", "pgc", "-n", namespace, "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}
