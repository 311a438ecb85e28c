package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestApply(t *testing.T) {
	dir := filepath.Join(root, "config", "default")
	apply := func(t *testing.T) string {
		t.Helper()
		out := plane.TryKubectl(t, "", "apply", "--server-side", "-k", dir)
		if out.Code != 0 || out.Stderr != "" { // The API server's warnings are there too.
			t.Fatalf("exit code %d:\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		return out.Stdout
	}
	versions := func(t *testing.T) string {
		t.Helper()
		var all strings.Builder
		for _, object := range defaults(t) {
			args := []string{
				"get", object.GetKind() + "." + object.GroupVersionKind().Group, object.GetName(), "-o",
				"jsonpath={.kind} {.metadata.name} {.metadata.resourceVersion}",
			}
			if object.GroupVersionKind().Group == "" {
				args[1] = object.GetKind()
			}
			if object.GetNamespace() != "" {
				args = append(args, "-n", object.GetNamespace())
			}
			all.WriteString(plane.Kubectl(t, args...) + "\n")
		}
		return all.String()
	}

	apply(t)
	first := versions(t)
	apply(t)
	if second := versions(t); second != first {
		t.Errorf("applying the same again changed something:\n%s\nto\n%s", first, second)
	}
	if out := plane.TryKubectl(t, "", "diff", "--server-side", "-k", dir); out.Code != 0 {
		t.Errorf("kubectl diff after apply: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	// An older kubectl, or a person, applies on the client's side.
	out := plane.TryKubectl(t, "", "apply", "--dry-run=server", "-k", dir)
	if out.Code != 0 {
		t.Errorf("client-side apply: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}

	// No operator runs here. What follows is about samples, which the CRD alone must judge as we say.
	plane.Kubectl(t, "delete", "validatingwebhookconfiguration", "pg-operator")
	plane.Kubectl(t, "create", "namespace", "shop")
	for _, sample := range []string{"orders-db.yaml", "full.yaml"} {
		out = plane.TryKubectl(t, "", "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f",
			filepath.Join(root, "config", "samples", sample))
		if out.Code != 0 || out.Stderr != "" {
			t.Errorf("%s: exit code %d\n%s%s", sample, out.Code, out.Stdout, out.Stderr)
		}
	}
	out = plane.TryKubectl(t, "", "apply", "--server-side", "-f", filepath.Join(root, "config", "samples", "rejected.yaml"))
	for _, part := range []string{`The PostgresCluster "rejected" is invalid`, "spec.replicas", "spec.storage"} {
		if out.Code == 0 || !strings.Contains(out.Stderr, part) {
			t.Errorf("rejected.yaml: exit code %d, no %q in:\n%s%s", out.Code, part, out.Stdout, out.Stderr)
		}
	}
	plane.Kubectl(t, "delete", "--wait=false", "--ignore-not-found", "-k", dir)
}
