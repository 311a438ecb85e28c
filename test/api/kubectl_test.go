package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/test/controlplane"
)

// seed is the manifest the project started from, word for word.
const seed = `apiVersion: db.example.com/v1alpha1
kind: PostgresCluster
metadata: {name: orders-db, namespace: shop}
spec: {replicas: 3, version: "16", storage: 20Gi}
`

// manifest is a PostgresCluster named orders-db as a user would write it.
func manifest(namespace, spec string) string {
	return "apiVersion: db.example.com/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders-db, namespace: " +
		namespace + "}\nspec: " + spec + "\n"
}

func apply(t *testing.T, text string, flags ...string) controlplane.Output {
	t.Helper()
	return plane.TryKubectl(t, text, append([]string{"apply", "-f", "-"}, flags...)...)
}

func mustApply(t *testing.T, text string, flags ...string) controlplane.Output {
	t.Helper()
	out := apply(t, text, flags...)
	if out.Code != 0 {
		t.Fatalf("kubectl apply: %s", out.Stderr)
	}
	return out
}

func get(t *testing.T, namespace string) *unstructured.Unstructured {
	t.Helper()
	u := object(t, namespace, "orders-db", "{}")
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	return u
}

func patchStatus(t *testing.T, namespace, status string) {
	t.Helper()
	u := object(t, namespace, "orders-db", "{}")
	err := plane.Client.Status().Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))
	if err != nil {
		t.Fatal(err)
	}
}

// table splits kubectl's columns.
func table(text string) [][]string {
	var rows [][]string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows
}

func TestSeedManifest(t *testing.T) {
	serveWebhooks(t).Install(t)
	plane.Kubectl(t, "create", "namespace", "shop")
	out := mustApply(t, seed)
	if out.Stderr != "" {
		t.Errorf("the seed manifest gives a warning: %s", out.Stderr)
	}
	live := get(t, "shop")
	if live.GetGeneration() != 1 {
		t.Errorf("generation %d, want 1", live.GetGeneration())
	}
	spec, _ := json.Marshal(live.Object["spec"])
	want := `{"deletionPolicy":"Retain","replicas":3,"storage":"20Gi","upgradePolicy":"MinorOnly","version":"16"}`
	if string(spec) != want {
		t.Errorf("stored spec %s, want %s", spec, want)
	}
	if again := mustApply(t, seed); !strings.Contains(again.Stdout, "unchanged") {
		t.Errorf("applied again: %s", again.Stdout)
	}
	if got := get(t, "shop").GetResourceVersion(); got != live.GetResourceVersion() {
		t.Error("applying the same manifest again wrote the object")
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	serveWebhooks(t).Install(t)
	for _, name := range []string{"orders-db.yaml", "full.yaml"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(plane.Repository, "config", "samples", name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			namespace := plane.Namespace(t)
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				if !strings.Contains(document, "kind: PostgresCluster") {
					continue
				}
				u := &unstructured.Unstructured{}
				if err := unmarshal(document, u); err != nil {
					t.Fatal(err)
				}
				u.SetNamespace(namespace)
				if err := plane.Client.Create(t.Context(), u); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// TestRejectionTexts is what a user reads.
func TestRejectionTexts(t *testing.T) {
	serveWebhooks(t).Install(t)
	tests := map[string]struct {
		old, spec, want string
	}{
		"three mistakes": {
			spec: `{replicas: 9, storage: 0Gi, image: "postgres:"}`,
			want: `The PostgresCluster "orders-db" is invalid: 
* spec.replicas: Invalid value: 9: spec.replicas in body should be less than or equal to 5
* spec.image: Invalid value: "postgres:": must be an image reference such as registry.example.com/postgres:17 or postgres@sha256:0123...
* spec.storage: Invalid value: "0Gi": must be whole gibibytes from 1Gi to 65536Gi, such as 20Gi
`,
		},
		"version that is not supported": {
			spec: `{version: "14"}`,
			want: `The PostgresCluster "orders-db" is invalid: 
* spec.version: Unsupported value: "14": supported values: "15", "16", "17", "18"
* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation
`,
		},
		"settings of the operator's": {
			spec: `{parameters: {listen_addresses: "*", fsync: "off"}}`,
			want: `The PostgresCluster "orders-db" is invalid: 
* spec.parameters[fsync]: Invalid value: cannot be set: without it a crash loses the database; use synchronous_commit = off to trade the last transactions for speed
* spec.parameters[listen_addresses]: Invalid value: cannot be set: the agent listens where the Services expect it; use a NetworkPolicy to limit who may connect
`,
		},
		"settings": {
			spec: `{parameters: {cluster_name: shop, work_mem: lots}}`,
			want: `The PostgresCluster "orders-db" is invalid: 
* spec.parameters[cluster_name]: Invalid value: cannot be set: it is the instance's name; set application_name in your clients instead
* spec.parameters[work_mem]: Invalid value: must be a whole number (of kB, unless it ends in one of the units B, kB, MB, GB and TB), not "lots"
`,
		},
		"client authentication": {
			spec: `{hba: ["hostssl all a 10.0.0.0/33 reject", "hostssl all a all ldap ldapbindpasswd=hunter2", "hostssl all a all clientcert=hunter2"]}`,
			want: `The PostgresCluster "orders-db" is invalid: 
* spec.hba[0]: Invalid value: has the address "10.0.0.0/33", whose length must be from 0 to 32
* spec.hba[1]: Forbidden: has the method ldap, which passes passwords on to a directory, whose certificate and bind password the instances have no safe place for; accepted are scram-sha-256 (a password), cert (a client certificate) and reject
* spec.hba[2]: Invalid value: has an option as its method; accepted are scram-sha-256 (a password), cert (a client certificate) and reject
`,
		},
		// The API server repeats values that are invalid, but not those that are forbidden: this one has a password.
		"client authentication without TLS": {
			spec: `{hba: ["host all a all ldap ldapbindpasswd=hunter2"]}`,
			want: `The PostgresCluster "orders-db" is invalid: spec.hba[0]: Forbidden: must begin with hostssl, because all connections have TLS: write hostssl instead of host or hostgssenc; local and hostnossl lines are not accepted
`,
		},
		"too many replicas in a change": {
			old: `{replicas: 3}`, spec: `{replicas: 9}`,
			want: `The PostgresCluster "orders-db" is invalid: spec.replicas: Invalid value: 9: spec.replicas in body should be less than or equal to 5
`,
		},
		"downgrade": {
			old: `{version: "16"}`, spec: `{version: "15"}`,
			want: `The PostgresCluster "orders-db" is invalid: spec.version: Forbidden: cannot go down to 15: PostgreSQL does not read the data of a newer major version; keep "16"
`,
		},
		"shrinking": {
			old: `{storage: 20Gi}`, spec: `{storage: 9Gi}`,
			want: `The PostgresCluster "orders-db" is invalid: spec.storage: Forbidden: cannot shrink to 9Gi: volumes only grow; the least it can be is 20Gi
`,
		},
		"another class": {
			old: `{storageClassName: fast}`, spec: `{storageClassName: slow}`,
			want: `The PostgresCluster "orders-db" is invalid: spec.storageClassName: Forbidden: cannot be changed, set or removed later, because volumes stay in their StorageClass: keep "fast"
`,
		},
		"wrong types": {
			spec: `{replicas: three, version: 16}`,
			want: `The PostgresCluster "orders-db" is invalid: 
* spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"
* spec.version: Invalid value: "integer": spec.version in body must be of type string: "integer"
* spec.version: Unsupported value: 16: supported values: "15", "16", "17", "18"
* .spec.replicas: Invalid value: 0: .spec.replicas accessor error: three is of the type string, expected int64
* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation
`,
		},
		"unknown field": {
			spec: `{replica: 3}`,
			want: `Error from server (BadRequest): error when creating "STDIN": PostgresCluster in version "v1alpha1" cannot be handled as a PostgresCluster: strict decoding error: unknown field "spec.replica"
`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := plane.Namespace(t)
			if test.old != "" {
				mustApply(t, manifest(namespace, test.old))
			}
			out := apply(t, manifest(namespace, test.spec))
			if got, want := answer(out.Stderr), answer(test.want); out.Code == 0 || got != want {
				t.Errorf("exit code %d, got:\n%s\nwant:\n%s", out.Code, got, want)
			}
		})
	}
}

// answer is an error's text without warnings, sorted: the API server finds the schema's errors in any order.
func answer(stderr string) string {
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(stderr)), func(line string) bool {
		return strings.HasPrefix(line, "Warning: ")
	})
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestWarningsOnAllowAndDeny(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	const warning = "Warning: spec.image: an image without tag, or with latest, can change at any restart"
	if out := apply(t, manifest(namespace, `{replicas: 3, image: postgres, parameters: {work_mem: lots}}`)); out.Code == 0 ||
		!strings.Contains(out.Stderr, warning) {
		t.Errorf("refused: exit code %d: %s", out.Code, out.Stderr)
	}
	if out := mustApply(t, manifest(namespace, `{replicas: 3, image: postgres}`)); !strings.Contains(out.Stderr, warning) {
		t.Errorf("accepted: %s", out.Stderr)
	}
	if out := mustApply(t, manifest(namespace, `{replicas: 3, image: postgres, paused: true}`)); out.Stderr != "" {
		t.Errorf("a change of something else repeats the warning: %s", out.Stderr)
	}
}

func TestColumns(t *testing.T) {
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3, version: "16", storage: 20Gi}`))
	patchStatus(t, namespace, `{"replicas":0,"readyReplicas":0}`)
	rows := table(plane.Kubectl(t, "get", "pgc", "-n", namespace))
	want := "NAME REPLICAS READY VERSION STORAGE PRIMARY STATUS AGE"
	if got := strings.Join(rows[0], " "); got != want {
		t.Errorf("columns %q, want %q", got, want)
	}
	if got := strings.Join(rows[1][:5], " "); got != "orders-db 3 0 16 20Gi" {
		t.Errorf("row %q; zero ready must show as 0", got)
	}
	patchStatus(t, namespace, `{"observedGeneration":1,"readyReplicas":3,"primary":"orders-db-0","conditions":[{"type":"Ready","status":"True",
		"reason":"AllReplicasReady","message":"3/3 instances ready","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`)
	rows = table(plane.Kubectl(t, "get", "postgrescluster", "-n", namespace))
	if got := strings.Join(rows[1][:7], " "); got != "orders-db 3 3 16 20Gi orders-db-0 AllReplicasReady" {
		t.Errorf("row %q", got)
	}
	wide := plane.Kubectl(t, "get", "postgresclusters", "-n", namespace, "-o", "wide")
	if !strings.Contains(wide, "MESSAGE") || !strings.Contains(wide, "3/3 instances ready") {
		t.Errorf("wide has no message: %s", wide)
	}
	if all := plane.Kubectl(t, "get", "all", "-n", namespace); !strings.Contains(all, "orders-db") {
		t.Errorf("kubectl get all: %s", all)
	}
	plane.Kubectl(t, "wait", "--for=condition=Ready", "pgc/orders-db", "-n", namespace, "--timeout=5s")
}

func TestExplain(t *testing.T) {
	text := strings.Join(strings.Fields(plane.Kubectl(t, "explain", "pgc.spec")), " ")
	for _, want := range []string{
		"is the number of instances, the primary included: 1 to 5", "version <string> enum: 15, 16, 17, 18",
		"deletionPolicy <string> enum: Retain, Delete", "storageClassName", "It can grow, not shrink.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("kubectl explain pgc.spec lacks %q:\n%s", want, text)
		}
	}
	for _, part := range []string{"pgc", "pgc.spec", "pgc.spec.synchronous", "pgc.spec.failover", "pgc.status", "pgc.status.instances", "pgc.status.plan", "pgc.status.conflicts", "pgc.status.lastFailover", "pgc.status.synchronous"} {
		if text := plane.Kubectl(t, "explain", part); strings.Contains(text, "<no description>") {
			t.Errorf("a field of %s has no description:\n%s", part, text)
		}
	}
}

func TestDryRunAndDiffStoreNothing(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3}`), "--dry-run=server")
	if out := plane.TryKubectl(t, "", "get", "pgc", "-n", namespace, "-o", "name"); out.Stdout != "" {
		t.Errorf("a dry run stored %s", out.Stdout)
	}
	mustApply(t, manifest(namespace, `{replicas: 3, storage: 20Gi}`))
	before := get(t, namespace).GetResourceVersion()
	out := plane.TryKubectl(t, manifest(namespace, `{replicas: 3, storage: 30Gi}`), "diff", "-f", "-")
	if out.Code != 1 || !strings.Contains(out.Stdout, "+  storage: 30Gi") {
		t.Errorf("kubectl diff: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	out = plane.TryKubectl(t, manifest(namespace, `{replicas: 3, storage: 20Gi}`), "diff", "-f", "-")
	if out.Code != 0 {
		t.Errorf("kubectl diff of the same: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	out = plane.TryKubectl(t, manifest(namespace, `{replicas: 3, storage: 10Gi}`), "diff", "-f", "-")
	if out.Code <= 1 || !strings.Contains(out.Stderr, "cannot shrink to 10Gi") {
		t.Errorf("kubectl diff of a refused change: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	if after := get(t, namespace).GetResourceVersion(); after != before {
		t.Errorf("resourceVersion went from %s to %s", before, after)
	}
}

// TestStatusBeforeTheOperator: a cluster that no operator has seen is of no generation, so that nobody takes it for one that
// is as it shall be. That is nobody's field, no drift, and gone with the first status.
func TestStatusBeforeTheOperator(t *testing.T) {
	serveWebhooks(t).Install(t)
	for name, arguments := range map[string][]string{
		"create": {"create"}, "client-side apply": {"apply"}, "server-side apply": {"apply", "--server-side"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := plane.Namespace(t)
			// The status in somebody's manifest, such as one that was exported, says nothing.
			sent := manifest(namespace, `{replicas: 3, storage: 20Gi}`)
			if name == "create" {
				sent += "\nstatus: {observedGeneration: 7, readyReplicas: 3}\n"
			}
			if out := plane.TryKubectl(t, sent, append(arguments, "-f", "-")...); out.Code != 0 {
				t.Fatal(out.Stderr)
			}
			first := get(t, namespace)
			if status, _ := json.Marshal(first.Object["status"]); string(status) != `{"observedGeneration":-1}` {
				t.Errorf("status %s", status)
			}
			for _, entry := range first.GetManagedFields() {
				if strings.Contains(string(entry.FieldsV1.GetRawBytes()), "f:status") {
					t.Errorf("%s owns the status: %s", entry.Manager, entry.FieldsV1.GetRawBytes())
				}
			}
			sent = manifest(namespace, `{replicas: 3, storage: 20Gi}`)
			diff := []string{"diff", "-f", "-"}
			if name == "server-side apply" {
				diff = append(diff, "--server-side")
			}
			if out := plane.TryKubectl(t, sent, diff...); out.Code != 0 && name != "create" {
				t.Errorf("kubectl diff: exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
			}
			if out := plane.TryKubectl(t, "", "wait", "--for=condition=Ready", "pgc/orders-db", "-n", namespace, "--timeout=100ms"); out.Code == 0 {
				t.Error("kubectl wait calls it Ready")
			}
			plane.Kubectl(t, "label", "pgc", "orders-db", "-n", namespace, "team=a")
			if generation := get(t, namespace).GetGeneration(); generation != 1 {
				t.Errorf("generation %d after a label", generation)
			}
			// The first status meets no other owner.
			status := object(t, namespace, "orders-db", "{}")
			delete(status.Object, "spec")
			status.Object["status"] = map[string]any{"observedGeneration": int64(1)}
			if err := plane.Client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(status),
				client.FieldOwner("pg-operator")); err != nil {
				t.Error(err)
			}
		})
	}
}
