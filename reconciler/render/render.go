// Package render turns a snapshot and a plan into the apply configurations of
// all children of a cluster, built fresh each time. It is pure.
package render

import (
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Config are the operator's settings that the children depend on.
type Config struct {
	// OperatorImage holds the agent's program.
	OperatorImage string
	// PostgresUID is the user and group that run PostgreSQL.
	PostgresUID int64
}

// Objects renders the full intent, in the order in which it is applied. The StatefulSet is last: it must not start
// pods before everything that they need was accepted.
func Objects(s *snapshot.Cluster, plan decide.Plan, config Config) ([]runtime.ApplyConfiguration, error) {
	configMap, err := configMap(s, plan)
	if err != nil {
		return nil, err
	}
	statefulSet, err := statefulSet(s, plan, config)
	if err != nil {
		return nil, err
	}
	objects := []runtime.ApplyConfiguration{
		serviceAccount(s), role(s, plan), roleBinding(s), configMap,
		selfSignedIssuer(s), caCertificate(s), caIssuer(s), serverCertificate(s), replicationCertificate(s),
		headlessService(s), readWriteService(s),
	}
	objects = append(objects, endpointSlice(s)...)
	objects = append(objects, readOnlyService(s), readService(s), podDisruptionBudget(s), networkPolicy(s))
	objects = append(objects, Claims(s, plan)...)
	return append(objects, statefulSet), nil
}

// Claims renders the volume claims alone.
func Claims(s *snapshot.Cluster, plan decide.Plan) []runtime.ApplyConfiguration {
	objects := make([]runtime.ApplyConfiguration, 0, len(plan.Claims))
	for _, claim := range plan.Claims {
		objects = append(objects, volumeClaim(s, claim))
	}
	return objects
}

// owner makes the cluster the controller of a child.
func owner(s *snapshot.Cluster) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.SchemeGroupVersion.String()).
		WithKind(v1alpha1.PostgresClusterKind.Kind).
		WithName(s.Object.Name).
		WithUID(s.Object.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// names are those of the snapshot's cluster; labels those of all its objects.
func names(s *snapshot.Cluster) naming.Cluster     { return s.Names() }
func labels(s *snapshot.Cluster) map[string]string { return s.Names().Labels() }
