package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/observe"
	"github.com/acme/pg-operator/reconciler/render"
)

// Options of the reconciler.
type Options struct {
	// OperatorImage holds the agent's program; an init container copies it into every instance.
	OperatorImage string
	// Images are the images of PostgreSQL by major version, for clusters that name none.
	Images map[string]string
	// Defaults of fields that users leave out.
	Defaults v1alpha1.Defaults
	// PostgresUID is the user and group that run PostgreSQL; 999 when zero, as in the official images.
	PostgresUID int64
	// LeaseDuration is how long a silent primary keeps its Lease; 10 seconds when zero.
	LeaseDuration time.Duration
	// NoPreflight leaves it to be found out later what the API server refuses.
	NoPreflight bool
	// MaxConcurrentReconciles is the number of clusters worked on at a time; 4 when zero.
	MaxConcurrentReconciles int
}

func (o Options) decide() decide.Config {
	return decide.Config{Images: o.Images, LeaseDuration: o.LeaseDuration}
}

func (o Options) render() render.Config {
	return render.Config{OperatorImage: o.OperatorImage, PostgresUID: o.PostgresUID}
}

func (o *Options) setDefaults() {
	if o.PostgresUID == 0 {
		o.PostgresUID = 999
	}
	if o.LeaseDuration == 0 {
		o.LeaseDuration = v1alpha1.DefaultLeaseDuration
	}
	if o.MaxConcurrentReconciles == 0 {
		o.MaxConcurrentReconciles = 4
	}
}

// CacheOptions make the cache hold PostgresClusters, StorageClasses, ResourceQuotas and of all other kinds nothing but our
// own children, without managedFields, and hand out its objects without copying them: whoever reads from it must not
// change what it gets. The filter is the default one because kinds that are named must exist when the operator starts,
// and cert-manager's may come later.
func CacheOptions() cache.Options {
	shared := true
	everything := cache.ByObject{Label: labels.Everything()}
	return cache.Options{
		DefaultTransform:             cache.TransformStripManagedFields(),
		DefaultUnsafeDisableDeepCopy: &shared,
		DefaultLabelSelector:         labels.SelectorFromSet(labels.Set{naming.LabelManagedBy: naming.ManagedBy}),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.PostgresCluster{}: everything, metadata(observe.StorageClassKind): everything,
			&corev1.ResourceQuota{}: everything,
		},
	}
}

// SetupWithManager registers the reconciler.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	_, err := Setup(mgr, options)
	return err
}

// Setup registers the reconciler and returns it, so that a pass can be measured.
func Setup(mgr ctrl.Manager, options Options) (*Reconciler, error) {
	options.setDefaults()
	r := &Reconciler{
		options: options, cache: mgr.GetCache(), live: mgr.GetAPIReader(), now: time.Now,
		applier:  apply.New(mgr.GetClient(), mgr.GetAPIReader(), naming.FieldManager, former, yields, time.Now),
		status:   mgr.GetClient().Status(),
		objects:  render.Objects,
		recorder: mgr.GetEventRecorder(naming.FieldManager),
	}
	c, err := controller.New("postgrescluster", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: options.MaxConcurrentReconciles,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			5*time.Millisecond, 5*time.Minute),
		ReconciliationTimeout: 2 * time.Minute,
		EnableWarmup:          new(true),
	})
	if err != nil {
		return nil, fmt.Errorf("create the controller: %w", err)
	}
	late := &lateKinds{mgr: mgr, controller: c, now: time.Now}
	r.observer = &observe.Observer{Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), CertManager: late.present}
	if err := watch(mgr, c); err != nil {
		return nil, err
	}
	late.atStart()
	return r, nil
}

// watch starts passes on every change of a cluster or of one of its children.
func watch(mgr ctrl.Manager, c controller.Controller) error {
	objects := []client.Object{
		&appsv1.StatefulSet{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.Service{}, &discoveryv1.EndpointSlice{},
	}
	for _, kind := range observe.MetadataKinds {
		objects = append(objects, metadata(kind))
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), client.Object(&v1alpha1.PostgresCluster{}),
		&editedFirst{})); err != nil {
		return fmt.Errorf("watch PostgresClusters: %w", err)
	}
	for _, object := range objects {
		if err := errors.Join(indexChild(context.Background(), mgr, object), watchChild(mgr, c, object)); err != nil {
			return err
		}
	}
	helped := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return unready(ctx, mgr.GetCache(), object.GetNamespace())
	})
	for _, object := range []client.Object{metadata(observe.StorageClassKind), &corev1.ResourceQuota{}} {
		if err := c.Watch(source.Kind(mgr.GetCache(), object, helped)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

func indexChild(ctx context.Context, mgr ctrl.Manager, object client.Object) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, object, observe.IndexCluster, observe.IndexByCluster); err != nil {
		return fmt.Errorf("index %T: %w", object, err)
	}
	return nil
}

func watchChild(mgr ctrl.Manager, c controller.Controller, object client.Object) error {
	if err := c.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(clusterOf))); err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	return nil
}

// clusterOf maps a child to its cluster. Children of children, such as the EndpointSlices that Kubernetes makes for
// our Services with our labels, are not ours; pods are.
func clusterOf(_ context.Context, object client.Object) []reconcile.Request {
	cluster := object.GetLabels()[naming.LabelCluster]
	owner := metav1.GetControllerOfNoCopy(object)
	if cluster == "" || (owner != nil && owner.Kind != v1alpha1.PostgresClusterKind.Kind && owner.Kind != "StatefulSet") {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: cluster}}}
}

// unready are the clusters that a new StorageClass, or a changed quota of a namespace, may help.
func unready(ctx context.Context, reader client.Reader, namespace string) []reconcile.Request {
	clusters := &v1alpha1.PostgresClusterList{}
	if err := reader.List(ctx, clusters, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		if !meta.IsStatusConditionTrue(clusters.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
		}
	}
	return requests
}

func metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}
