package render

import (
	rbacv1 "k8s.io/api/rbac/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

func serviceAccount(s *snapshot.Cluster) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(names(s).ServiceAccount(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s))
}

// role limits the agents to the objects of their own cluster, by name.
func role(s *snapshot.Cluster, plan decide.Plan) *rbacv1ac.RoleApplyConfiguration {
	n := names(s)
	pods := make([]string, 0, plan.Replicas)
	for ordinal := range plan.Replicas {
		pods = append(pods, n.Instance(ordinal))
	}
	return rbacv1ac.Role(n.Role(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithRules(
			rbacv1ac.PolicyRule().WithAPIGroups("coordination.k8s.io").WithResources("leases").
				WithResourceNames(n.Lease()).WithVerbs("get", "patch"),
			rbacv1ac.PolicyRule().WithAPIGroups("discovery.k8s.io").WithResources("endpointslices").
				WithResourceNames(n.EndpointSlice()).WithVerbs("get", "patch"),
			rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("configmaps").
				WithResourceNames(n.ConfigMap()).WithVerbs("get", "list", "watch"),
			rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("pods").
				WithResourceNames(pods...).WithVerbs("get", "patch"),
		)
}

func roleBinding(s *snapshot.Cluster) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(names(s).RoleBinding(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(names(s).Role())).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).
			WithName(names(s).ServiceAccount()).WithNamespace(s.Object.Namespace))
}
