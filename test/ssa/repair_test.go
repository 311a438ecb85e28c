package ssa_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
)

// edits change a field of the operator's in a child of each kind.
var edits = map[string]struct {
	gvk    schema.GroupVersionKind
	name   string
	patch  string
	fields []string
}{
	"ServiceAccount label": {
		schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"},
		"orders",
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"x"}}}`,
		[]string{"metadata", "labels"},
	},
	"Role rules": {
		schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		"orders",
		`{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]}`,
		[]string{"rules"},
	},
	"RoleBinding subjects": {
		schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		"orders",
		`{"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"default"}]}`,
		[]string{"subjects"},
	},
	"ConfigMap data": {
		schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		"orders-instance",
		`{"data":{"config.json":"{}"}}`,
		[]string{"data"},
	},
	"Issuer secret": {
		schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"},
		"orders-ca",
		`{"spec":{"ca":{"secretName":"other"}}}`,
		[]string{"spec", "ca"},
	},
	"Certificate names": {
		schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
		"orders-server",
		`{"spec":{"dnsNames":["evil.example.com"]}}`,
		[]string{"spec", "dnsNames"},
	},
	"headless Service": {
		schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		"orders",
		`{"spec":{"publishNotReadyAddresses":false}}`,
		[]string{"spec", "publishNotReadyAddresses"},
	},
	"read-write Service": {
		schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		"orders-rw",
		`{"spec":{"selector":{"db.example.com/role":"replica"}}}`,
		[]string{"spec", "selector"},
	},
	"read Service type": {
		schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		"orders-r",
		`{"spec":{"type":"NodePort"}}`,
		[]string{"spec", "type"},
	},
	"EndpointSlice label": {
		schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
		"orders-rw",
		`{"metadata":{"labels":{"kubernetes.io/service-name":"other"}}}`,
		[]string{"metadata", "labels"},
	},
	"PodDisruptionBudget": {
		schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		"orders",
		`{"spec":{"selector":{"matchLabels":{"app.kubernetes.io/name":"other"}}}}`,
		[]string{"spec", "selector"},
	},
	"NetworkPolicy rules": {
		schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		"orders",
		`{"spec":{"ingress":[{}]}}`,
		[]string{"spec", "ingress"},
	},
	"PersistentVolumeClaim annotation": {
		schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"},
		"data-orders-0",
		`{"metadata":{"annotations":{"db.example.com/data-version":"9"}}}`,
		[]string{"metadata", "annotations"},
	},
	"StatefulSet grace period": {
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		"orders",
		`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}`,
		[]string{"spec", "template", "spec", "terminationGracePeriodSeconds"},
	},
	"StatefulSet owner": {
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		"orders",
		`{"metadata":{"ownerReferences":[]}}`,
		[]string{"metadata", "ownerReferences"},
	},
	"Service label that ties it to the cluster": {
		schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		"orders-ro",
		`{"metadata":{"labels":{"db.example.com/cluster":"other"}}}`,
		[]string{"metadata", "labels"},
	},
}

// TestEveryForeignChangeIsRepaired, although a pass calls the API server only about children that have changed.
func TestEveryForeignChangeIsRepaired(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	quiet(t, c.Namespace)
	read := func(ctx context.Context, gvk schema.GroupVersionKind, name string, fields ...string) (string, error) {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		if err := plane.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, object); err != nil {
			return "", err
		}
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, fields...)
		return fmt.Sprint(value), err
	}
	before, changed := map[string]string{}, map[string]string{}
	for what, edit := range edits {
		value, err := read(t.Context(), edit.gvk, edit.name, edit.fields...)
		if err != nil {
			t.Fatal(what, err)
		}
		before[what] = value
	}
	for what, edit := range edits {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(edit.gvk)
		object.SetNamespace(c.Namespace)
		object.SetName(edit.name)
		err := plane.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(edit.patch)),
			client.FieldOwner("meddler"))
		if err != nil {
			t.Fatal(what, err)
		}
		value, _, _ := unstructured.NestedFieldNoCopy(object.Object, edit.fields...)
		changed[what] = fmt.Sprint(value)
	}
	for what, edit := range edits {
		if changed[what] == before[what] {
			t.Errorf("%s: the edit changed nothing", what)
		}
		controlplane.Eventually(t, func(ctx context.Context) error {
			value, err := read(ctx, edit.gvk, edit.name, edit.fields...)
			if err == nil && value != before[what] {
				err = fmt.Errorf("%s: %s, want %s", what, value, before[what])
			}
			return err
		})
	}
	awaitReady(t, c)
	quiet(t, c.Namespace)
	live, err := get(t.Context(), c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
	if err != nil || len(live.Status.Conflicts) == 0 || len(live.Status.Conflicts) > 16 {
		t.Errorf("%d conflicts are told of: %v", len(live.Status.Conflicts), err)
	}
	// With many conflicts in the status, nothing goes on at rest.
	wantAtRest(t, c, func() { touch(t, c.Namespace, "orders-0", "x") })
}
