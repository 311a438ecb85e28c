package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	reading  = "get list watch"
	applying = "create get list patch watch"
	children = "create delete get list patch watch"
)

// rights are all that the operator has outside its own namespace. Children are applied, so none needs update. Patch
// on pods and Leases is what the agents have: who grants a right must have it.
var rights = map[string]string{
	"serviceaccounts":                        children,
	"configmaps":                             children,
	"services":                               children,
	"persistentvolumeclaims":                 applying,     // Never delete: they hold the data.
	"pods":                                   children,     // Create is for asking, by dry runs.
	"secrets":                                "create get", // Never list or watch: they are other people's too.
	"events":                                 "list",
	"resourcequotas":                         reading,
	"limitranges":                            "list",
	"roles.rbac.authorization.k8s.io":        children,
	"rolebindings.rbac.authorization.k8s.io": children,
	"leases.coordination.k8s.io":             "create get patch",
	"endpointslices.discovery.k8s.io":        children,
	"poddisruptionbudgets.policy":            children,
	"networkpolicies.networking.k8s.io":      children,
	"issuers.cert-manager.io":                children,
	"certificates.cert-manager.io":           children,
	"statefulsets.apps":                      children,
	"storageclasses.storage.k8s.io":          reading,
	"events.events.k8s.io":                   "create patch",
	"postgresclusters.db.example.com":        reading, // Never written: the spec is the user's.
	"postgresclusters.db.example.com/status": "patch",
	// Whether the API server trusts the served certificate; the name behind the resource limits it to ours.
	"mutatingwebhookconfigurations.admissionregistration.k8s.io pg-operator":   reading,
	"validatingwebhookconfigurations.admissionregistration.k8s.io pg-operator": reading,
	// Owner references that block the deletion of their owner need it, where that is checked.
	"postgresclusters.db.example.com/finalizers": "update",
}

// TestRights compares the shipped ClusterRole with the list: a right more would let a bug reach further than it must.
func TestRights(t *testing.T) {
	role := one[rbacv1.ClusterRole](t, defaults(t), "ClusterRole", "pg-operator")
	got := map[string]string{}
	for _, rule := range role.Rules {
		if len(rule.NonResourceURLs) > 0 {
			t.Errorf("a rule of another form: %v", rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name, subresource, _ := strings.Cut(resource, "/")
				if group != "" {
					name += "." + group
				}
				if subresource != "" {
					name += "/" + subresource
				}
				if len(rule.ResourceNames) > 0 {
					name += " " + strings.Join(rule.ResourceNames, " ")
				}
				verbs := append(strings.Fields(got[name]), rule.Verbs...)
				slices.Sort(verbs)
				got[name] = strings.Join(slices.Compact(verbs), " ")
			}
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(got)) {
		if got[resource] != rights[resource] {
			t.Errorf("%s: %q, want %q", resource, got[resource], rights[resource])
		}
	}
	for resource := range rights {
		if got[resource] == "" {
			t.Errorf("no right on %s", resource)
		}
	}
}
