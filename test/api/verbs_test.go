package api

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestEveryVerb changes one object with each verb of kubectl, with all layers of admission in force, and ends with a
// wrong change by each.
func TestEveryVerb(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	run := func(stdin string, arguments ...string) {
		t.Helper()
		if out := plane.TryKubectl(t, stdin, arguments...); out.Code != 0 {
			t.Errorf("kubectl %s: exit code %d: %s", strings.Join(arguments, " "), out.Code, out.Stderr)
		}
	}
	wants := func(replicas int64) {
		t.Helper()
		spec := get(t, namespace).Object["spec"].(map[string]any)
		if spec["replicas"] != replicas || spec["version"] != "16" || spec["storage"] != "20Gi" {
			t.Errorf("spec %v, want %d replicas and the rest as it was", spec, replicas)
		}
	}
	spec := func(replicas string) string {
		return manifest(namespace, `{replicas: `+replicas+`, version: "16", storage: 20Gi}`)
	}
	ways := map[string]func(replicas, flag string) (stdin string, arguments []string){
		"replace": func(replicas, flag string) (string, []string) {
			return spec(replicas), []string{"replace", "-f", "-", flag}
		},
		"json patch": func(replicas, flag string) (string, []string) {
			return "", []string{
				"patch", "pgc", "orders-db", "-n", namespace, "--type=json", flag,
				`-p=[{"op":"replace","path":"/spec/replicas","value":` + replicas + `}]`,
			}
		},
		"merge patch": func(replicas, flag string) (string, []string) {
			return "", []string{
				"patch", "pgc", "orders-db", "-n", namespace, "--type=merge", flag, `-p={"spec":{"replicas":` + replicas + `}}`,
			}
		},
		"client-side apply": func(replicas, flag string) (string, []string) {
			return spec(replicas), []string{"apply", "-f", "-", flag}
		},
		"server-side apply": func(replicas, flag string) (string, []string) {
			return spec(replicas), []string{"apply", "--server-side", "--force-conflicts", "-f", "-", flag}
		},
	}
	run(spec("3"), "create", "-f", "-", "--dry-run=server")
	run(spec("3"), "create", "-f", "-")
	wants(3)
	for number, way := range slices.Sorted(maps.Keys(ways)) {
		replicas, before := []string{"4", "5"}[number%2], []int64{5, 4}[number%2]
		if number == 0 {
			before = 3
		}
		stdin, arguments := ways[way](replicas, "--dry-run=server")
		run(stdin, arguments...)
		wants(before)
		stdin, arguments = ways[way](replicas, "--dry-run=none")
		run(stdin, arguments...)
		wants([]int64{4, 5}[number%2])
		stdin, arguments = ways[way]("9", "--dry-run=none")
		out := plane.TryKubectl(t, stdin, arguments...)
		if out.Code == 0 || !strings.Contains(out.Stderr, `The PostgresCluster "orders-db" is invalid: spec.replicas: Invalid value: 9`) {
			t.Errorf("%s of 9 replicas: exit code %d: %s", way, out.Code, out.Stderr)
		}
	}
}

// TestFromClientSideToServerSideApply: what a user has applied on the client's side goes when it goes from the manifest
// that is applied on the server's side later.
func TestFromClientSideToServerSideApply(t *testing.T) {
	serveWebhooks(t).Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3, storage: 20Gi, parameters: {work_mem: 8MB}}`))
	mustApply(t, manifest(namespace, `{replicas: 3, storage: 20Gi, parameters: {work_mem: 9MB}}`), "--server-side")
	mustApply(t, manifest(namespace, `{replicas: 3, storage: 20Gi}`), "--server-side")
	live := get(t, namespace)
	want := `{"deletionPolicy":"Retain","replicas":3,"storage":"20Gi","upgradePolicy":"MinorOnly","version":"17"}`
	if got := specOf(live); got != want {
		t.Errorf("spec %s, want %s", got, want)
	}
	// Leaving out storage means no opinion, also to a user who owned it.
	mustApply(t, manifest(namespace, `{replicas: 3}`), "--server-side")
	if got := specOf(get(t, namespace)); got != want {
		t.Errorf("spec %s, want %s", got, want)
	}
}
