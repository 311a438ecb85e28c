package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/admissioncases"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/webhooks"
)

var defaults = v1alpha1.Defaults{Version: "17", Storage: "50Gi"}

func serveWebhooks(t *testing.T) *controlplane.Webhooks {
	t.Helper()
	return plane.ServeWebhooks(t, func(mgr ctrl.Manager) error {
		return webhooks.SetupWithManager(mgr, webhooks.Options{Defaults: defaults})
	})
}

// TestAdmissionTable sends the table to the API server in three ways; each must give the same verdicts.
func TestAdmissionTable(t *testing.T) {
	t.Run("schema and CEL alone", func(t *testing.T) { runTable(t, layers{schema: true}) })
	t.Run("webhook alone", func(t *testing.T) {
		plane.InstallCRD(t, controlplane.WithoutRules(plane.CRD(t)))
		serveWebhooks(t).Install(t)
		runTable(t, layers{webhook: true})
	})
	t.Run("both", func(t *testing.T) {
		serveWebhooks(t).Install(t)
		runTable(t, layers{schema: true, webhook: true})
	})
}

type layers struct{ schema, webhook bool }

func runTable(t *testing.T, in layers) {
	namespace := plane.Namespace(t)
	t.Run("table", func(t *testing.T) {
		number := 0
		for name, test := range admissioncases.All {
			number++
			object := test.ObjectName
			if object == "" {
				object = fmt.Sprintf("db-%d", number)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for verb, send := range verbs(test.Old != "") {
					warnings := &collector{}
					c := warningClient(t, warnings)
					err := send(t, c, desired{namespace, object, test.New}, func() { store(t, namespace, object, test) })
					check(t, verb, in, test, err, warnings.all())
				}
			})
		}
	})
}

func check(t *testing.T, verb string, in layers, test admissioncases.Case, err error, warnings []string) {
	t.Helper()
	want := test.Refused
	if (test.NotInSchema && !in.webhook) || (test.Kept && in.webhook) {
		want = nil
	}
	if got := refusedFields(t, err); !sameFields(got, want, in) {
		t.Errorf("%s: refused %q, want %q: %v", verb, got, want, err)
	}
	if err != nil && test.Says != "" && !strings.Contains(err.Error(), test.Says) {
		t.Errorf("%s: says %q, want %q in it", verb, err, test.Says)
	}
	warned := slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, test.Warns) })
	if test.Warns != "" && in.webhook && !warned {
		t.Errorf("%s: warnings %q, want %q among them", verb, warnings, test.Warns)
	}
}

// refusedFields are the fields of a 422; another error fails the test, because users would see no field.
func refusedFields(t *testing.T, err error) []string {
	t.Helper()
	fields, err := fieldsOf(err)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

func fieldsOf(err error) ([]string, error) {
	if err == nil {
		return nil, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return nil, fmt.Errorf("want 422, got: %w", err)
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "<nil>" {
			continue // "some validation rules were not checked", after a value that is not in a list.
		}
		fields = append(fields, strings.TrimPrefix(cause.Field, ".")) // The scale subresource's paths begin with a dot.
	}
	slices.Sort(fields)
	return slices.Compact(fields), nil
}

// sameFields compares fields. The schema's rules name the field above where a key of a map or the name is at fault;
// and where the schema refuses, the webhook is not asked.
func sameFields(got, want []string, in layers) bool {
	if !in.schema {
		return slices.Equal(got, want)
	}
	under := func(all []string, field string) bool {
		return slices.ContainsFunc(all, func(f string) bool { return strings.HasPrefix(field, f) })
	}
	for _, field := range want {
		if !under(got, field) {
			return false
		}
	}
	for _, field := range got {
		if !slices.ContainsFunc(want, func(f string) bool { return strings.HasPrefix(f, field) }) {
			return false
		}
	}
	return true
}

// desired is an object that a user wants.
type desired struct{ namespace, name, spec string }

func (d desired) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return object(t, d.namespace, d.name, d.spec)
}

func object(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte("spec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	with := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q},%s`,
		v1alpha1.SchemeGroupVersion, v1alpha1.PostgresClusterKind.Kind, namespace, name, asJSON[1:])
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(with)); err != nil {
		t.Fatal(err)
	}
	return u
}

// store puts the object into the state before the change.
func store(t *testing.T, namespace, name string, test admissioncases.Case) {
	t.Helper()
	if err := serverSideApply(t, plane.Client, desired{namespace, name, test.Old}); err != nil {
		t.Fatalf("create the old object: %v", err)
	}
	if test.Status == "" {
		return
	}
	status, err := yaml.YAMLToJSON([]byte(`status: ` + test.Status))
	if err != nil {
		t.Fatal(err)
	}
	current := object(t, namespace, name, test.Old)
	if err := plane.Client.Status().Patch(t.Context(), current, client.RawPatch(types.MergePatchType, status)); err != nil {
		t.Fatalf("write the old status: %v", err)
	}
}

type sender func(t *testing.T, c client.Client, want desired, store func()) error

// verbs are the ways to create or to change an object. Each starts without the object and leaves none behind.
func verbs(change bool) map[string]sender {
	if !change {
		return map[string]sender{
			"POST": cleaned(func(t *testing.T, c client.Client, want desired) error {
				return c.Create(t.Context(), want.object(t))
			}),
			"apply": cleaned(serverSideApply),
		}
	}
	return map[string]sender{
		"PUT":   onStored(put),
		"patch": onStored(mergePatch),
		"apply": onStored(serverSideApply),
	}
}

func cleaned(send func(*testing.T, client.Client, desired) error) sender {
	return func(t *testing.T, c client.Client, want desired, _ func()) error {
		t.Helper()
		defer remove(t, want)
		return send(t, c, want)
	}
}

func onStored(send func(*testing.T, client.Client, desired) error) sender {
	return func(t *testing.T, c client.Client, want desired, store func()) error {
		t.Helper()
		store()
		defer remove(t, want)
		return send(t, c, want)
	}
}

func remove(t *testing.T, d desired) {
	t.Helper()
	object := d.object(t)
	if strings.Contains(d.spec, "deletionProtection: true") {
		lift := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionProtection":null}}`))
		if err := plane.Client.Patch(t.Context(), object, lift); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	if err := plane.Client.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, c client.Client, want desired) error {
	t.Helper()
	current := want.object(t)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(current), current); err != nil {
		t.Fatal(err)
	}
	replace(current, want.object(t))
	return c.Update(t.Context(), current)
}

func mergePatch(t *testing.T, c client.Client, want desired) error {
	t.Helper()
	current := want.object(t)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(current), current); err != nil {
		t.Fatal(err)
	}
	before := current.DeepCopy()
	replace(current, want.object(t))
	return c.Patch(t.Context(), current, client.MergeFrom(before))
}

// replace gives the current object the wanted spec; what has a default in the schema stays, as with `kubectl replace`.
func replace(current, want *unstructured.Unstructured) {
	current.Object["spec"] = want.Object["spec"]
}

func serverSideApply(t *testing.T, c client.Client, want desired) error {
	t.Helper()
	return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(want.object(t)),
		client.FieldOwner("somebody"), client.ForceOwnership)
}

// collector keeps the warnings of a client's answers.
type collector struct {
	mu       sync.Mutex
	warnings []string
}

func (c *collector) HandleWarningHeader(_ int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, text)
}

func (c *collector) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.warnings)
}

func warningClient(t *testing.T, warnings rest.WarningHandler) client.Client {
	t.Helper()
	config := rest.CopyConfig(plane.Config)
	config.WarningHandler = warnings
	c, err := client.New(config, client.Options{Scheme: plane.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func unmarshal(text string, u *unstructured.Unstructured) error {
	return yaml.Unmarshal([]byte(text), &u.Object)
}
