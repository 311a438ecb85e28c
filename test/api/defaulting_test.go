package api

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func specOf(u *unstructured.Unstructured) string {
	text, _ := json.Marshal(u.Object["spec"])
	return string(text)
}

func TestDefaultsAreStored(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{}`))
	want := `{"deletionPolicy":"Retain","replicas":1,"storage":"50Gi","upgradePolicy":"MinorOnly","version":"17"}`
	if got := specOf(get(t, namespace)); got != want {
		t.Errorf("spec %s, want %s", got, want)
	}
	// Defaulting what has been defaulted changes nothing: no new generation, no write.
	patchStatus(t, namespace, `{"observedGeneration":1}`) // Until then the status's own default waits for a write.
	before := get(t, namespace)
	if err := plane.Client.Update(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	mustApply(t, manifest(namespace, `{}`))
	after := get(t, namespace)
	if after.GetGeneration() != 1 || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("generation %d, resourceVersion %s -> %s", after.GetGeneration(), before.GetResourceVersion(), after.GetResourceVersion())
	}
}

// TestOmittedMeansNoOpinion sends the same short manifest in ways that replace the whole object.
func TestOmittedMeansNoOpinion(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{version: "16", storage: 20Gi}`))
	out := plane.TryKubectl(t, manifest(namespace, `{replicas: 3}`), "replace", "-f", "-")
	if out.Code != 0 {
		t.Fatal(out.Stderr)
	}
	want := `{"deletionPolicy":"Retain","replicas":3,"storage":"20Gi","upgradePolicy":"MinorOnly","version":"16"}`
	if got := specOf(get(t, namespace)); got != want {
		t.Errorf("spec %s, want %s", got, want)
	}
}

// TestRunningClusterKeepsItsVersion stores a cluster without the webhook; the operator's defaults are not its own.
func TestRunningClusterKeepsItsVersion(t *testing.T) {
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{}`))
	patchStatus(t, namespace, `{"version":"16","provisionedStorage":"1Ti"}`)
	serveWebhooks(t).Install(t)
	mustApply(t, manifest(namespace, `{replicas: 3}`))
	want := `{"deletionPolicy":"Retain","replicas":3,"storage":"1024Gi","upgradePolicy":"MinorOnly","version":"16"}`
	if got := specOf(get(t, namespace)); got != want {
		t.Errorf("spec %s, want %s", got, want)
	}
}

// TestAppliersOwnOnlyWhatTheySet reads managedFields: what was defaulted belongs to nobody, so that nobody conflicts
// over it later.
func TestAppliersOwnOnlyWhatTheySet(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{version: "16"}`), "--server-side")
	entries := get(t, namespace).GetManagedFields()
	if len(entries) != 1 || entries[0].Manager != "kubectl" {
		t.Fatalf("managers %+v", entries)
	}
	if got, want := string(entries[0].FieldsV1.GetRawBytes()), `{"f:spec":{"f:version":{}}}`; got != want {
		t.Errorf("kubectl owns %s, want %s", got, want)
	}
	// A second applier sets what was defaulted, without a conflict.
	err := plane.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(
		object(t, namespace, "orders-db", `{replicas: 3, storage: 60Gi}`)), client.FieldOwner("another"))
	if err != nil {
		t.Error(err)
	}
}

// TestNewerFieldsPass puts a field into the CRD that this operator does not know, as after a CRD's upgrade.
func TestNewerFieldsPass(t *testing.T) {
	crd := plane.CRD(t)
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties["newer"] = apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int64"}
	plane.InstallCRD(t, crd)
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	u := object(t, namespace, "orders-db", `{newer: 9007199254740993}`)
	if err := plane.Client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(u.Object, int64(3), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if err := plane.Client.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if got := specOf(get(t, namespace)); !strings.Contains(got, `"newer":9007199254740993`) || !strings.Contains(got, `"replicas":3`) {
		t.Errorf("spec %s", got)
	}
	// The merge patch of a client that does not know it either.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
	if err := plane.Client.Patch(t.Context(), u, patch); err != nil {
		t.Fatal(err)
	}
	if got := specOf(get(t, namespace)); !strings.Contains(got, `"newer":9007199254740993`) {
		t.Errorf("spec %s", got)
	}
}
