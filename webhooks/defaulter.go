package webhooks

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// defaulter adds the fields that a user left out. It sees objects before the schema judges them, so what it cannot
// decode it passes on unchanged: the schema refuses it with the right field.
type defaulter struct {
	defaults v1alpha1.Defaults
}

var _ admission.Handler = &defaulter{}

// Handle never refuses.
func (d *defaulter) Handle(_ context.Context, req admission.Request) admission.Response {
	cluster, err := decode(req.Object.Raw)
	if err != nil || cluster.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	before := cluster.DeepCopy()
	if req.Operation == admissionv1.Update {
		if old, oldErr := decode(req.OldObject.Raw); oldErr == nil {
			cluster.KeepUnset(old)
		}
	}
	cluster.Default(d.defaults)
	patches, err := additions(&before.Spec, &cluster.Spec, hasSpec(req.Object.Raw))
	if err != nil || len(patches) == 0 {
		return admission.Allowed("")
	}
	return admission.Patched("", patches...)
}

// additions are the operations that add to an object the fields that only the second spec has. An object keeps
// whatever else it holds, fields that this program does not know included.
func additions(before, after *v1alpha1.PostgresClusterSpec, hasSpec bool) ([]webhook.JSONPatchOp, error) {
	had, err := fields(before)
	if err != nil {
		return nil, err
	}
	has, err := fields(after)
	if err != nil {
		return nil, err
	}
	var patches []webhook.JSONPatchOp
	if !hasSpec {
		patches = append(patches, webhook.JSONPatchOp{Operation: "add", Path: "/spec", Value: map[string]any{}})
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, set := had[name]; !set {
			patches = append(patches, webhook.JSONPatchOp{Operation: "add", Path: "/spec/" + name, Value: has[name]})
		}
	}
	return patches, nil
}

func fields(spec *v1alpha1.PostgresClusterSpec) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var byName map[string]any
	return byName, json.Unmarshal(text, &byName)
}
