package render

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// podDisruptionBudget lets drains take one instance at a time, and instances that are not ready at any time, so that
// neither a single instance nor a broken one forbids a drain.
func podDisruptionBudget(s *snapshot.Cluster) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	return policyv1ac.PodDisruptionBudget(names(s).PDB(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(instanceSelector(s)))
}

// networkPolicy opens PostgreSQL and the probes, which say yes or no and nothing else, to everybody, and the agents' port
// to the cluster's own instances only.
func networkPolicy(s *snapshot.Cluster) *networkingv1ac.NetworkPolicyApplyConfiguration {
	return networkingv1ac.NetworkPolicy(names(s).NetworkPolicy(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(instanceSelector(s)).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(
				networkingv1ac.NetworkPolicyIngressRule().WithPorts(
					policyPort(naming.PortPostgres), policyPort(naming.PortProbe)),
				networkingv1ac.NetworkPolicyIngressRule().
					WithPorts(policyPort(naming.PortAgent)).
					WithFrom(networkingv1ac.NetworkPolicyPeer().WithPodSelector(instanceSelector(s)))))
}

func policyPort(port int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(port))
}

func instanceSelector(s *snapshot.Cluster) *metav1ac.LabelSelectorApplyConfiguration {
	return metav1ac.LabelSelector().WithMatchLabels(names(s).SelectorLabels())
}
