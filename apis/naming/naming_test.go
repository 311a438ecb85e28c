package naming_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/acme/pg-operator/apis/naming"
)

// kinds are the names of a cluster's objects by kind. What is of one kind must differ.
func kinds(c naming.Cluster) map[string][]string {
	const last = 4 // spec.replicas is at most 5.
	return map[string][]string{
		"StatefulSet":           {c.StatefulSet()},
		"Service":               {c.ServiceHeadless(), c.ServiceReadWrite(), c.ServiceReadOnly(), c.ServiceRead()},
		"EndpointSlice":         {c.EndpointSlice()},
		"ConfigMap":             {c.ConfigMap()},
		"Secret":                {c.SecretApp(), c.SecretSuperuser(), c.CertificateCA(), c.CertificateServer(), c.CertificateReplica()},
		"Issuer":                {c.IssuerSelfSigned(), c.IssuerCA()},
		"Certificate":           {c.CertificateCA(), c.CertificateServer(), c.CertificateReplica()},
		"Lease":                 {c.Lease()},
		"ServiceAccount":        {c.ServiceAccount()},
		"Role":                  {c.Role()},
		"RoleBinding":           {c.RoleBinding()},
		"PodDisruptionBudget":   {c.PDB()},
		"NetworkPolicy":         {c.NetworkPolicy()},
		"Pod":                   {c.Instance(0), c.Instance(last)},
		"PersistentVolumeClaim": {c.PVC(0), c.PVC(last)},
	}
}

// TestNames of the longest cluster are valid for Services and host names, which take the least.
func TestNames(t *testing.T) {
	longest := naming.Cluster("a" + strings.Repeat("-", naming.MaxClusterName-2) + "z")
	for kind, names := range kinds(longest) {
		seen := map[string]bool{}
		for _, name := range names {
			if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
				t.Errorf("%s %s: %v", kind, name, problems)
			}
			if seen[name] {
				t.Errorf("two of kind %s are named %s", kind, name)
			}
			seen[name] = true
		}
	}
	// The StatefulSet's controller labels pods with this, a dash and a hash of at most 10 letters.
	if revision := longest.StatefulSet() + "-" + strings.Repeat("0", 10); len(validation.IsValidLabelValue(revision)) > 0 {
		t.Errorf("the revision %s is no value of a label", revision)
	}
	for name, value := range longest.Labels() {
		if problems := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			t.Errorf("label %s=%s: %v", name, value, problems)
		}
	}
}

// TestOrdinals are found again in the names that were made of them, and in no others.
func TestOrdinals(t *testing.T) {
	const c = naming.Cluster("orders-1")
	for _, ordinal := range []int32{0, 4, 10} {
		if found, ok := c.Ordinal(c.Instance(ordinal)); !ok || found != ordinal {
			t.Errorf("instance %s: %d %v", c.Instance(ordinal), found, ok)
		}
		if found, ok := c.PVCOrdinal(c.PVC(ordinal)); !ok || found != ordinal {
			t.Errorf("volume claim %s: %d %v", c.PVC(ordinal), found, ok)
		}
	}
	for _, name := range []string{"orders-1", "orders-1-", "orders-1-x", "orders-1-00", "orders-1--1", "orders-11-0", "orders-1-0-0", "data-orders-1-0"} {
		if ordinal, ok := c.Ordinal(name); ok {
			t.Errorf("%s is taken for instance %d", name, ordinal)
		}
	}
}

// TestFieldManagersDiffer: two that had one name would take each other's fields away.
func TestFieldManagersDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range append([]string{naming.FieldManager, naming.FieldManagerInstance, naming.FieldManagerAuthority},
		append(naming.FormerFieldManagers, naming.FirstFieldManagers...)...) {
		if seen[name] || len(name) > 128 {
			t.Errorf("field manager %s is there twice or too long", name)
		}
		seen[name] = true
	}
}
