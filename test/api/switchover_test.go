package api

import (
	"strings"
	"testing"
)

// TestSwitchoverIsChecked has users ask for another primary: of what they type, nothing is stored that names no instance.
func TestSwitchoverIsChecked(t *testing.T) {
	hooks := serveWebhooks(t)
	hooks.Install(t)
	namespace := plane.Namespace(t)
	mustApply(t, manifest(namespace, `{replicas: 3}`))
	annotate := func(annotation string) (code int, says string) {
		out := plane.TryKubectl(t, "", "annotate", "pgc", "orders-db", "-n", namespace, "--overwrite", annotation)
		return out.Code, out.Stderr
	}
	const key = "db.example.com/switchover"
	for _, request := range []string{"orders-db-3", "orders-db-", "all"} {
		code, says := annotate(key + "=" + request)
		if code == 0 || !strings.HasPrefix(says, `The PostgresCluster "orders-db" is invalid: metadata.annotations[`+key+"]: ") || !strings.Contains(says, "any, orders-db-0, orders-db-1, orders-db-2") {
			t.Errorf("%s: exit code %d: %s", request, code, says)
		}
	}
	if stored := get(t, namespace).GetAnnotations()[key]; stored != "" {
		t.Errorf("%q was stored", stored)
	}
	for _, request := range []string{"any", "orders-db-2", "any@again"} {
		if code, says := annotate(key + "=" + request); code != 0 || says != "" {
			t.Errorf("%s: exit code %d: %s", request, code, says)
		}
	}
	// Other annotations need no webhook, whatever is asked for.
	hooks.Stop(t)
	if code, says := annotate("example.com/note=x"); code != 0 {
		t.Errorf("another annotation: %s", says)
	}
	if code, _ := annotate(key + "=any@late"); code == 0 {
		t.Error("a request was stored that nobody checked")
	}
}
