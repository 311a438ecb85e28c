package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// keyed are the parts of children, by kind, with lists whose items have a key besides a name that must be unique. Who
// changes the key of an item, such as a port's number, makes an item of his own out of it, which an apply can neither
// change nor remove, and which stands in the way of the one that is to come back.
var keyed = map[string][]string{
	"Service":     {"spec", "ports"},
	"StatefulSet": {"spec", "template", "spec"},
}

// rewrite replaces such a part by what it shall be, after the server found an apply to an existing child invalid. It says
// whether the intent can be applied now; false leaves the server's refusal as it is.
func (p *Pass) rewrite(ctx context.Context, r *request) bool {
	path := keyed[r.key.Kind]
	if path == nil || r.uid == "" {
		return false
	}
	taken := []outcome.Conflict{{Manager: unnamedManager, Path: "." + strings.Join(path, ".")}}
	if fought, _ := p.memory.contested(r.key, taken, p.now()); len(fought) > 0 {
		return false
	}
	patch, err := replacement(r, path)
	if err != nil {
		return false
	}
	p.Result.Calls++
	if err := p.writer.Patch(ctx, p.child(r.key), client.RawPatch(types.JSONPatchType, patch), p.manager); err != nil {
		return false
	}
	p.memory.record(r.key, taken, p.now())
	p.Result.TakenBack = append(p.Result.TakenBack, outcome.Disputed{Key: r.key, Conflicts: taken})
	return true
}

// replacement is the patch that puts a part of the intent in place of the live one, of this very object.
func replacement(r *request, path []string) ([]byte, error) {
	var part any
	if err := json.Unmarshal(r.body, &part); err != nil {
		return nil, fmt.Errorf("decoding the configuration of %s %s: %w", r.key.Kind, r.key.Name, err)
	}
	for _, name := range path {
		parent, _ := part.(map[string]any)
		part = parent[name]
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": r.uid},
		{"op": "replace", "path": "/" + strings.Join(path, "/"), "value": part},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a part of %s %s: %w", r.key.Kind, r.key.Name, err)
	}
	return patch, nil
}
