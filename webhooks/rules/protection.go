package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Protected tells a user why a cluster with spec.deletionProtection cannot be deleted, and what to do about it.
// config/policy has the same text.
func Protected(user string, cluster types.NamespacedName) string {
	return fmt.Sprintf("%s cannot delete PostgresCluster %s/%s, because its spec.deletionProtection is true; "+
		`to allow it: kubectl patch pgc %s -n %s --type=merge -p '{"spec":{"deletionProtection":false}}'`,
		user, cluster.Namespace, cluster.Name, cluster.Name, cluster.Namespace)
}
