package api

import "testing"

func TestPathOf(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest, want string
	}{
		"core":        {"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: shop}", "/api/v1/namespaces/shop/services/s"},
		"group":       {"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: c}", "/apis/storage.k8s.io/v1/storageclasses/c"},
		"no name":     {"apiVersion: v1\nkind: Namespace\nmetadata: {}", ""},
		"no space":    {"apiVersion: v1\nkind: Service\nmetadata: {name: s}", ""},
		"excess":      {"apiVersion: v1\nkind: Namespace\nmetadata: {name: s, namespace: shop}", ""},
		"unknown":     {"apiVersion: v1\nkind: Pod\nmetadata: {name: s, namespace: shop}", ""},
		"not a thing": {"just text", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pathOf([]byte(tc.manifest))
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
