// Package observe fills a snapshot of one cluster: from the cache, one list
// per kind, and live only where something is missing.
package observe

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// IndexCluster is the cache's index of objects by the cluster that their label names.
const IndexCluster = "cluster"

// MetadataKinds are the children of which only metadata is cached: what they hold is compared by the server.
var MetadataKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
}

// IssuerKind is cached like MetadataKinds, once the API server knows it.
var IssuerKind = cmv1.SchemeGroupVersion.WithKind(cmv1.IssuerKind)

// IndexByCluster is the function behind IndexCluster.
func IndexByCluster(object client.Object) []string {
	if cluster := object.GetLabels()[naming.LabelCluster]; cluster != "" {
		return []string{cluster}
	}
	return nil
}

// Observer reads facts.
type Observer struct {
	// Cache is indexed by IndexCluster and hands out shared objects.
	Cache client.Reader
	// Live reads past the cache.
	Live client.Reader
	// CertManager says whether the API server knows cert-manager's kinds and the cache has them.
	CertManager func(context.Context) bool

	refusals refusals
}

// Facts are the cached objects of one cluster, as they are.
type Facts struct {
	cluster      *v1alpha1.PostgresCluster
	children     map[schema.GroupVersionKind][]metav1.PartialObjectMetadata
	statefulSets appsv1.StatefulSetList
	pods         corev1.PodList
	claims       corev1.PersistentVolumeClaimList
	services     corev1.ServiceList
	slices       discoveryv1.EndpointSliceList
	certificates cmv1.CertificateList
	certManager  bool
}

// Facts lists everything of one cluster from the cache.
func (o *Observer) Facts(ctx context.Context, cluster *v1alpha1.PostgresCluster) (*Facts, error) {
	f := &Facts{
		cluster:     cluster,
		children:    make(map[schema.GroupVersionKind][]metav1.PartialObjectMetadata, len(MetadataKinds)+1),
		certManager: o.CertManager(ctx),
	}
	options := []client.ListOption{
		client.InNamespace(cluster.Namespace), client.MatchingFields{IndexCluster: cluster.Name},
	}
	lists := []client.ObjectList{&f.statefulSets, &f.pods, &f.claims, &f.services, &f.slices}
	kinds := MetadataKinds
	if f.certManager {
		lists = append(lists, &f.certificates)
		kinds = append(slices.Clip(kinds), IssuerKind)
	}
	for _, list := range lists {
		if err := o.Cache.List(ctx, list, options...); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	for _, kind := range kinds {
		list := metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := o.Cache.List(ctx, &list, options...); err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		f.children[kind] = list.Items
	}
	return f, nil
}

// seed of this process's fingerprints.
var seed = maphash.MakeSeed()

// version is what changes with every change of an object.
type version struct {
	uid             types.UID
	resourceVersion string
}

// Fingerprint changes when any of the facts does.
func (f *Facts) Fingerprint() uint64 {
	// Lists come in no order, so each object counts by itself. A sum needs a hash of which every bit depends on all bits:
	// FNV's sums stay the same where two objects' versions move in step, and a change would go unseen for minutes.
	sum := uint64(0)
	each := func(object metav1.Object) {
		sum += maphash.Comparable(seed, version{object.GetUID(), object.GetResourceVersion()})
	}
	each(f.cluster)
	for i := range f.statefulSets.Items {
		each(&f.statefulSets.Items[i])
	}
	for i := range f.pods.Items {
		each(&f.pods.Items[i])
	}
	for i := range f.claims.Items {
		each(&f.claims.Items[i])
	}
	for i := range f.services.Items {
		each(&f.services.Items[i])
	}
	for i := range f.slices.Items {
		each(&f.slices.Items[i])
	}
	for i := range f.certificates.Items {
		each(&f.certificates.Items[i])
	}
	for _, objects := range f.children {
		for i := range objects {
			each(&objects[i])
		}
	}
	if f.certManager {
		sum++
	}
	return sum
}

// Snapshot orders the facts into a snapshot of a cluster, which is the facts' own with defaults filled in.
func (f *Facts) Snapshot(cluster *v1alpha1.PostgresCluster) *snapshot.Cluster {
	s := &snapshot.Cluster{
		Object: cluster, CertManager: f.certManager, Children: map[outcome.Key]metav1.Object{},
	}
	for kind, objects := range f.children {
		for i := range objects {
			addChild(s, kind, &objects[i])
		}
	}
	for i := range f.services.Items {
		addChild(s, corev1.SchemeGroupVersion.WithKind("Service"), &f.services.Items[i])
	}
	for i := range f.slices.Items {
		addChild(s, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), &f.slices.Items[i])
	}
	for i := range f.statefulSets.Items {
		object := &f.statefulSets.Items[i]
		if addChild(s, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object) && object.Name == s.Names().StatefulSet() {
			s.StatefulSet = object
		}
	}
	for i := range f.certificates.Items {
		object := &f.certificates.Items[i]
		if addChild(s, cmv1.SchemeGroupVersion.WithKind(cmv1.CertificateKind), object) {
			s.Certificates = append(s.Certificates, object)
		}
	}
	f.instances(s)
	s.Sort()
	return s
}

// addChild adds an object unless somebody else controls it: such an object is not there for us, and an apply that
// expects nothing there will find out about it.
func addChild(s *snapshot.Cluster, kind schema.GroupVersionKind, object metav1.Object) bool {
	if controller := metav1.GetControllerOfNoCopy(object); controller != nil && controller.UID != s.Object.UID {
		return false
	}
	s.Children[outcome.Key{GroupKind: kind.GroupKind(), Name: object.GetName()}] = object
	return true
}

func (f *Facts) instances(s *snapshot.Cluster) {
	index := map[int32]*snapshot.Instance{}
	instance := func(ordinal int32) *snapshot.Instance {
		if index[ordinal] == nil {
			index[ordinal] = &snapshot.Instance{Name: s.Names().Instance(ordinal), Ordinal: ordinal}
		}
		return index[ordinal]
	}
	for i := range f.pods.Items {
		pod := &f.pods.Items[i]
		ordinal, ok := s.Names().Ordinal(pod.Name)
		if !ok {
			continue
		}
		if s.StatefulSet == nil && !pod.DeletionTimestamp.IsZero() {
			s.Leaving = append(s.Leaving, pod)
		}
		report := contract.ParseReport(pod.Annotations[naming.AnnotationReport])
		if member(s, pod, ordinal, report) {
			entry := instance(ordinal)
			entry.Pod, entry.Report = pod, report
		}
	}
	for i := range f.claims.Items {
		claim := &f.claims.Items[i]
		if ordinal, ok := s.Names().PVCOrdinal(claim.Name); ok &&
			addChild(s, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), claim) {
			instance(ordinal).Claim = claim
		}
	}
	for _, entry := range index {
		s.Instances = append(s.Instances, *entry)
	}
}

// member says that a pod is this very cluster's: its StatefulSet made it. Pods that an earlier cluster of this name has
// left carry the same labels and tell of other data. While the StatefulSet is made anew its pods have no controller, or
// one of its name that is gone; they are known by the data then. It made none of ordinals that it does not ask for.
// Whoever may create pods can say anything in a report, so others are not listened to.
func member(s *snapshot.Cluster, pod *corev1.Pod, ordinal int32, report *contract.Report) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller != nil && s.StatefulSet != nil && controller.UID == s.StatefulSet.UID {
		return snapshot.ControlledBy(s.StatefulSet, s.Object.UID)
	}
	if controller != nil && (controller.Kind != "StatefulSet" || controller.Name != s.Names().StatefulSet()) {
		return false
	}
	if s.StatefulSet != nil && ordinal >= s.LiveReplicas() {
		return false
	}
	data := s.Object.Status.SystemID
	return data != "" && (report == nil || report.SystemID == "" || report.SystemID == data)
}
