package render

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// TestAddressFamily: the slice has the family of its Service, and one of another family makes room.
func TestAddressFamily(t *testing.T) {
	tests := map[string]struct {
		service corev1.IPFamily
		slice   discoveryv1.AddressType
		want    discoveryv1.AddressType
	}{
		"nothing is known":           {want: discoveryv1.AddressTypeIPv4},
		"a Service of IPv6":          {service: corev1.IPv6Protocol, want: discoveryv1.AddressTypeIPv6},
		"both":                       {service: corev1.IPv6Protocol, slice: discoveryv1.AddressTypeIPv6, want: discoveryv1.AddressTypeIPv6},
		"a slice of the wrong kind":  {service: corev1.IPv6Protocol, slice: discoveryv1.AddressTypeIPv4},
		"the Service was lost":       {slice: discoveryv1.AddressTypeIPv6, want: discoveryv1.AddressTypeIPv6},
		"what most clusters are, v4": {service: corev1.IPv4Protocol, slice: discoveryv1.AddressTypeIPv4, want: discoveryv1.AddressTypeIPv4},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := sample(t, "orders-db.yaml")
			s.Children = map[outcome.Key]metav1.Object{}
			if test.service != "" {
				s.Children[outcome.NewKey("", "Service", "orders-db-rw")] = &corev1.Service{
					Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{test.service}},
				}
			}
			if test.slice != "" {
				s.Children[outcome.NewKey("discovery.k8s.io", "EndpointSlice", names(s).EndpointSlice())] = &discoveryv1.EndpointSlice{
					AddressType: test.slice,
				}
			}
			var got discoveryv1.AddressType
			for _, object := range endpointSlice(s) {
				got = *object.(*discoveryv1ac.EndpointSliceApplyConfiguration).AddressType
			}
			if got != test.want {
				t.Errorf("address type %q, want %q", got, test.want)
			}
		})
	}
}
