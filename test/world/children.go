package world

import (
	"context"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Children are the objects in a namespace of all kinds of which the operator makes some. Its rights let it make no others
// but Events.
func Children(ctx context.Context, reader client.Reader, namespace string) ([]client.Object, error) {
	return Objects(ctx, reader, namespace,
		&corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.SecretList{},
		&corev1.ConfigMapList{}, &cmv1.IssuerList{}, &cmv1.CertificateList{}, &corev1.ServiceList{},
		&discoveryv1.EndpointSliceList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.NetworkPolicyList{},
		&corev1.PersistentVolumeClaimList{}, &appsv1.StatefulSetList{}, &coordinationv1.LeaseList{},
	)
}

// Objects are those in a namespace of the kinds of some lists.
func Objects(ctx context.Context, reader client.Reader, namespace string, lists ...client.ObjectList) ([]client.Object, error) {
	var objects []client.Object
	for _, list := range lists {
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			objects = append(objects, item.(client.Object))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return objects, nil
}
