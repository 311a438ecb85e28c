package api

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/test/controlplane"
)

func patch(t *testing.T, namespace, body string) error {
	t.Helper()
	u := object(t, namespace, "orders-db", "{}")
	return plane.Client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(body)))
}

// TestUnchangedSpecNeedsNoWebhook counts calls: labels, finalizers, status and deletion must work with a dead operator.
func TestUnchangedSpecNeedsNoWebhook(t *testing.T) {
	webhooks := serveWebhooks(t)
	webhooks.Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3}`))
	steps := []struct {
		name  string
		calls int
		do    func() error
	}{
		{"label", 0, func() error { return patch(t, namespace, `{"metadata":{"labels":{"team":"a"}}}`) }},
		{"add finalizer", 0, func() error { return patch(t, namespace, `{"metadata":{"finalizers":["example.com/x"]}}`) }},
		{"status", 0, func() error { patchStatus(t, namespace, `{"primary":"orders-db-0"}`); return nil }},
		{"scale", 0, func() error {
			plane.Kubectl(t, "scale", "pgc", "orders-db", "-n", namespace, "--replicas=2")
			return nil
		}},
		{"spec", 1, func() error { return patch(t, namespace, `{"spec":{"replicas":4}}`) }},
		{"delete", 0, func() error {
			return plane.Client.Delete(t.Context(), object(t, namespace, "orders-db", "{}"))
		}},
		{"delete again", 0, func() error {
			return plane.Client.DeleteAllOf(t.Context(), object(t, namespace, "orders-db", "{}"), client.InNamespace(namespace))
		}},
		{"remove finalizer", 0, func() error { return patch(t, namespace, `{"metadata":{"finalizers":null}}`) }},
	}
	for _, step := range steps {
		before := plane.WebhookCalls(t)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for name, after := range plane.WebhookCalls(t) {
			want := step.calls
			if name == protectName {
				want = 0 // It is for clusters that ask for it, and this one does not.
			}
			if got := after - before[name]; got != want {
				t.Errorf("%s: %d calls of %s, want %d", step.name, got, name, want)
			}
		}
	}
}

// TestDeadWebhook stops the server behind the configurations.
func TestDeadWebhook(t *testing.T) {
	webhooks := serveWebhooks(t)
	webhooks.Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3}`))
	if err := patch(t, namespace, `{"metadata":{"finalizers":["example.com/x"]}}`); err != nil {
		t.Fatal(err)
	}
	webhooks.Stop(t)

	out := apply(t, manifest(namespace, `{replicas: 2}`))
	if out.Code == 0 || !strings.Contains(out.Stderr, `failed calling webhook "validate.postgresclusters.db.example.com"`) {
		t.Errorf("a spec that nobody judged: exit code %d: %s", out.Code, out.Stderr)
	}
	plane.Kubectl(t, "label", "pgc", "orders-db", "-n", namespace, "team=a")
	patchStatus(t, namespace, `{"primary":"orders-db-0"}`)
	plane.Kubectl(t, "delete", "pgc", "orders-db", "-n", namespace, "--wait=false")
	if err := patch(t, namespace, `{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("remove the finalizer: %v", err)
	}
	err := plane.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "orders-db"}, object(t, namespace, "orders-db", "{}"))
	if !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
}

// legacy is an object that today's rules refuse everywhere.
const legacy = `{replicas: 9, version: "15.2", storage: 0Gi, storageClassName: Bad_Class, image: Postgres,
	resources: {requests: {cpu: 2}, limits: {cpu: 1}}, parameters: {fsync: "off", work_men: 8MB}, tolerations: [{operator: Is}]}`

// storeLegacy smuggles an object in under a definition without rules.
func storeLegacy(t *testing.T, namespace, name string) {
	t.Helper()
	t.Run("store", func(t *testing.T) {
		plane.InstallCRD(t, controlplane.WithoutRules(plane.CRD(t)))
		u := object(t, namespace, name, legacy)
		u.SetFinalizers([]string{"example.com/x"})
		if err := plane.Client.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLegacyObjects leaves what was invalid before alone, with the CRD by itself and with the webhook too.
func TestLegacyObjects(t *testing.T) {
	for name, install := range map[string]func(*testing.T){
		"schema and CEL alone": func(*testing.T) {},
		"both":                 func(t *testing.T) { serveWebhooks(t).Install(t) },
	} {
		t.Run(name, func(t *testing.T) {
			namespace := plane.Namespace(t)
			storeLegacy(t, namespace, "orders-db")
			storeLegacy(t, namespace, "1.a-name-that-is-much-longer-than-fifty-characters-in-all")
			install(t)
			accepted := map[string]string{
				"label":       `{"metadata":{"labels":{"team":"a"}}}`,
				"other field": `{"spec":{"paused":true}}`,
				"mend one":    `{"spec":{"replicas":3}}`,
				"mend image":  `{"spec":{"image":"postgres:15"}}`,
				"new setting": `{"spec":{"parameters":{"work_mem":"8MB"}}}`,
			}
			for what, body := range accepted {
				if err := patch(t, namespace, body); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			patchStatus(t, namespace, `{"primary":"orders-db-0"}`)
			refused := map[string]string{
				"spec.storage":          `{"spec":{"storage":"00Gi"}}`,
				"spec.version":          `{"spec":{"version":"14"}}`,
				"spec.storageClassName": `{"spec":{"storageClassName":"good"}}`,
				"spec.replicas":         `{"spec":{"replicas":8}}`,
			}
			for field, body := range refused {
				if got := refusedFields(t, patch(t, namespace, body)); len(got) != 1 || got[0] != field {
					t.Errorf("%s: refused %q", body, got)
				}
			}
			for _, object := range []string{"orders-db", "1.a-name-that-is-much-longer-than-fifty-characters-in-all"} {
				plane.Kubectl(t, "delete", "pgc", object, "-n", namespace, "--wait=false")
				plane.Kubectl(t, "patch", "pgc", object, "-n", namespace, "--type=merge", `-p={"metadata":{"finalizers":null}}`)
			}
			if left := plane.Kubectl(t, "get", "pgc", "-n", namespace, "-o", "name"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

// TestLaterDefault gives an immutable field a default after objects without it were stored. Every layer judges.
func TestLaterDefault(t *testing.T) {
	namespace := plane.Namespace(t)
	u := object(t, namespace, "orders-db", `{replicas: 3}`)
	u.SetFinalizers([]string{"example.com/x"})
	if err := plane.Client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	crd := plane.CRD(t)
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	class := spec.Properties["storageClassName"]
	class.Default = &apiextensionsv1.JSON{Raw: []byte(`"fast"`)}
	spec.Properties["storageClassName"] = class
	plane.InstallCRD(t, crd)
	serveWebhooks(t).Install(t)
	for what, body := range map[string]string{
		"label": `{"metadata":{"labels":{"team":"a"}}}`, "spec": `{"spec":{"replicas":2}}`,
		"finalizer": `{"metadata":{"finalizers":null}}`,
	} {
		if err := patch(t, namespace, body); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	patchStatus(t, namespace, `{"primary":"orders-db-0"}`)
}
