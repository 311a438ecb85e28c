package render

import (
	"encoding/json"
	"testing"

	"github.com/acme/pg-operator/reconciler/decide"
)

// TestObjectsAreBuiltAnew: an apply may fill the server's answer into what it was given, so nothing of one pass may be
// part of what the next one renders, nor of the cluster's own spec.
func TestObjectsAreBuiltAnew(t *testing.T) {
	const answer = `{"metadata":{"labels":{"filled":"in"},"annotations":{"filled":"in"},"resourceVersion":"7"},` +
		`"spec":{"selector":{"matchLabels":{"filled":"in"}},"podSelector":{"matchLabels":{"filled":"in"}},` +
		`"resources":{"requests":{"storage":"999Gi"},"limits":{"cpu":"99"}},"template":{"metadata":{"labels":{"filled":"in"}},` +
		`"spec":{"nodeSelector":{"filled":"in"},"containers":[{"name":"filled-in",` +
		`"resources":{"requests":{"cpu":"99"},"limits":{"cpu":"99"}}}]}}},"data":{"filled":"in"}}`
	s := sample(t, "full.yaml")
	plan := decide.Next(s, deciders, now)
	spec, err := json.Marshal(s.Object)
	if err != nil {
		t.Fatal(err)
	}
	render := func() (all []string) {
		objects, err := Objects(s, plan, renderers)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
			_ = json.Unmarshal([]byte(answer), object) // Not every kind has all of these fields.
		}
		return all
	}
	first, second := render(), render()
	for i := range first {
		if first[i] != second[i] {
			t.Errorf("rendered again, with what was filled in before:\n%s\nwant\n%s", second[i], first[i])
		}
	}
	if after, err := json.Marshal(s.Object); err != nil || string(after) != string(spec) {
		t.Errorf("the cluster itself was changed: %s: %v", after, err)
	}
}
