package render

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

func service(s *snapshot.Cluster, name string) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(name, s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s))
}

func postgresPort() *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().
		WithName(naming.PortPostgresName).
		WithPort(naming.PortPostgres).
		WithProtocol(corev1.ProtocolTCP).
		WithTargetPort(intstr.FromString(naming.PortPostgresName))
}

// headlessService gives every instance its DNS name, from before it is ready: instances find each other by it.
func headlessService(s *snapshot.Cluster) *corev1ac.ServiceApplyConfiguration {
	return service(s, names(s).ServiceHeadless()).WithSpec(corev1ac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).
		WithPublishNotReadyAddresses(true).
		WithSelector(names(s).SelectorLabels()).
		WithPorts(postgresPort(), corev1ac.ServicePort().
			WithName(naming.PortAgentName).
			WithPort(naming.PortAgent).
			WithProtocol(corev1.ProtocolTCP).
			WithTargetPort(intstr.FromString(naming.PortAgentName))))
}

// readWriteService selects nobody: the primary's agent writes its EndpointSlice, one object, in one atomic flip. It has
// a selector all the same, to own the field: one that somebody else adds would lead writes to replicas, and a field
// that was never ours is never taken back.
func readWriteService(s *snapshot.Cluster) *corev1ac.ServiceApplyConfiguration {
	nobody := names(s).SelectorLabels()
	nobody[naming.LabelRole] = naming.RoleNobody
	return service(s, names(s).ServiceReadWrite()).WithSpec(corev1ac.ServiceSpec().
		WithType(corev1.ServiceTypeClusterIP).
		WithSelector(nobody).
		// No pod is selected whose port could have the name.
		WithPorts(postgresPort().WithTargetPort(intstr.FromInt32(naming.PortPostgres))))
}

// endpointSlice is the empty frame that the primary's agent fills. Its addresses are of the read-write Service's family.
// That cannot be changed: a slice of another family is left out, so that it goes and comes back in a later pass.
func endpointSlice(s *snapshot.Cluster) []runtime.ApplyConfiguration {
	family := discoveryv1.AddressTypeIPv4
	live, exists := s.Children[outcome.NewKey(discoveryv1.GroupName, "EndpointSlice", names(s).EndpointSlice())].(*discoveryv1.EndpointSlice)
	if exists {
		family = live.AddressType
	}
	service, known := s.Children[outcome.NewKey(corev1.GroupName, "Service", names(s).ServiceReadWrite())].(*corev1.Service)
	if known && len(service.Spec.IPFamilies) > 0 {
		family = discoveryv1.AddressType(service.Spec.IPFamilies[0])
	}
	if exists && live.AddressType != family {
		return nil
	}
	return []runtime.ApplyConfiguration{emptySlice(s, family)}
}

func emptySlice(s *snapshot.Cluster, family discoveryv1.AddressType) *discoveryv1ac.EndpointSliceApplyConfiguration {
	return discoveryv1ac.EndpointSlice(names(s).EndpointSlice(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithLabels(map[string]string{
			discoveryv1.LabelServiceName: names(s).ServiceReadWrite(),
			// Kubernetes leaves alone what others manage.
			discoveryv1.LabelManagedBy: naming.FieldManagerInstance,
		}).
		WithOwnerReferences(owner(s)).
		WithAddressType(family)
}

func readOnlyService(s *snapshot.Cluster) *corev1ac.ServiceApplyConfiguration {
	selector := names(s).SelectorLabels()
	selector[naming.LabelRole] = naming.RoleReplica
	return service(s, names(s).ServiceReadOnly()).WithSpec(corev1ac.ServiceSpec().
		WithType(corev1.ServiceTypeClusterIP).WithSelector(selector).WithPorts(postgresPort()))
}

// readService reaches every ready instance, whatever its role: only the primary and replicas that stream are ready.
func readService(s *snapshot.Cluster) *corev1ac.ServiceApplyConfiguration {
	return service(s, names(s).ServiceRead()).WithSpec(corev1ac.ServiceSpec().
		WithType(corev1.ServiceTypeClusterIP).WithSelector(names(s).SelectorLabels()).WithPorts(postgresPort()))
}
