package world

import (
	"context"
	"slices"
	"strings"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// volumeProtection keeps a claim until no pod uses it.
const volumeProtection = "kubernetes.io/pvc-protection"

// garbage plays the garbage collector for a while: dependents of owners that are gone go; dependents of owners that are
// deleted in the foreground go before them; those of owners that leave orphans lose their owner.
func (w *World) garbage(ctx context.Context) {
	// Dependents are listed before owners, so that none is missing of an owner that is seen.
	dependents, err := Children(ctx, w.client, w.namespace)
	if err != nil {
		return
	}
	pods, err := Objects(ctx, w.client, w.namespace, &corev1.PodList{})
	dependents = append(dependents, pods...)
	clusters, sets := &v1alpha1.PostgresClusterList{}, &appsv1.StatefulSetList{}
	if err != nil || w.client.List(ctx, clusters, client.InNamespace(w.namespace)) != nil ||
		w.client.List(ctx, sets, client.InNamespace(w.namespace)) != nil {
		return
	}
	owners := map[types.UID]client.Object{}
	for i := range clusters.Items {
		owners[clusters.Items[i].UID] = &clusters.Items[i]
	}
	for i := range sets.Items {
		owners[sets.Items[i].UID] = &sets.Items[i]
	}
	left := map[types.UID]int{}
	for _, object := range dependents {
		w.unprotect(ctx, object, dependents)
		owner := metav1.GetControllerOf(object)
		if owner == nil || (owner.Kind != v1alpha1.PostgresClusterKind.Kind && owner.Kind != "StatefulSet") {
			continue
		}
		left[owner.UID]++
		live := owners[owner.UID]
		switch {
		case live == nil, deleting(live, metav1.FinalizerDeleteDependents):
			uid := object.GetUID()
			_ = w.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		case deleting(live, metav1.FinalizerOrphanDependents) && owner.Kind == v1alpha1.PostgresClusterKind.Kind:
			object.SetOwnerReferences(nil)
			_ = w.client.Update(ctx, object)
		}
	}
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		if cluster.DeletionTimestamp != nil && left[cluster.UID] == 0 {
			cluster.Finalizers = slices.DeleteFunc(cluster.Finalizers, func(name string) bool {
				return name == metav1.FinalizerDeleteDependents || name == metav1.FinalizerOrphanDependents
			})
			_ = w.client.Update(ctx, cluster)
		}
	}
}

func deleting(object client.Object, finalizer string) bool {
	return object.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(object, finalizer)
}

// unprotect lets a deleted claim go that no pod uses.
func (w *World) unprotect(ctx context.Context, object client.Object, all []client.Object) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || !deleting(claim, volumeProtection) {
		return
	}
	pod := strings.TrimPrefix(claim.Name, naming.VolumeData+"-")
	used := slices.ContainsFunc(all, func(other client.Object) bool {
		_, isPod := other.(*corev1.Pod)
		return isPod && other.GetName() == pod
	})
	if !used && controllerutil.RemoveFinalizer(claim, volumeProtection) {
		_ = w.client.Update(ctx, claim)
	}
}

func (w *World) certificates(ctx context.Context) {
	list := &cmv1.CertificateList{}
	if w.client.List(ctx, list, client.InNamespace(w.namespace)) != nil {
		return
	}
	for i := range list.Items {
		certificate := &list.Items[i]
		if len(certificate.Status.Conditions) == 0 {
			now := metav1.Now()
			certificate.Status.Conditions = []cmv1.CertificateCondition{{
				Type: cmv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, Reason: "Ready", LastTransitionTime: &now,
			}}
			_ = w.client.Status().Update(ctx, certificate)
		}
	}
}
