package volumes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// grower enlarges a volume in use to a size in bytes.
type grower interface {
	Grow(ctx context.Context, name string, bytes int64) error
}

// resizer grows the volumes of one node when their claims ask for more.
type resizer struct {
	client  kubernetes.Interface
	node    string
	disks   grower
	events  record.EventRecorder
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newResizer(client kubernetes.Interface, factory informers.SharedInformerFactory, node string, disks grower, events record.EventRecorder) (*resizer, error) {
	r := &resizer{
		client: client, node: node, disks: disks, events: events,
		claims:  factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](retryMin, retryMax)),
	}
	claimHandler := cache.ResourceEventHandlerFuncs{
		AddFunc:    r.enqueueClaim,
		UpdateFunc: func(_, claim any) { r.enqueueClaim(claim) },
	}
	if _, err := factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(claimHandler); err != nil {
		return nil, err
	}
	// The informers run side by side: a claim may be known before its volume.
	volumeHandler := cache.ResourceEventHandlerFuncs{
		AddFunc:    r.enqueueVolume,
		UpdateFunc: func(_, volume any) { r.enqueueVolume(volume) },
	}
	_, err := factory.Core().V1().PersistentVolumes().Informer().AddEventHandler(volumeHandler)
	return r, err
}

func (r *resizer) enqueueClaim(object any) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName != "" {
		r.queue.Add(cache.MetaObjectToName(claim))
	}
}

func (r *resizer) enqueueVolume(object any) {
	if volume, ok := object.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil && belongsTo(volume, r.node) {
		r.queue.Add(cache.NewObjectName(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name))
	}
}

// run works until the context ends.
func (r *resizer) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if err := r.sync(ctx, key); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to resize volume", "claim", key)
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
		r.queue.Done(key)
	}
}

// sync brings one claim and its volume to the claim's request.
func (r *resizer) sync(ctx context.Context, key cache.ObjectName) error {
	claim, volume, err := r.lookup(key)
	if err != nil || claim == nil {
		return err
	}
	if !wantsGrowth(claim, volume) {
		if !unsettled(claim, volume) {
			return nil
		}
		return r.finish(ctx, claim, volume)
	}
	class, err := r.classes.Get(volume.Spec.StorageClassName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return nil
	}
	return r.grow(ctx, claim, volume)
}

// lookup returns no claim when there is nothing of this node to look after.
func (r *resizer) lookup(key cache.ObjectName) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	claim, err := r.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	volume, err := r.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	ours := belongsTo(volume, r.node) && claim.Status.Phase == corev1.ClaimBound &&
		volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == claim.UID
	if !ours {
		return nil, nil, nil
	}
	return claim, volume, nil
}

func (r *resizer) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	bytes := sizeFor(request)
	announce := func(status *corev1.PersistentVolumeClaimStatus) {
		if !failedBefore(status, request) {
			started(status, request, metav1.Now())
		}
	}
	if err := r.updateStatus(ctx, claim, announce); err != nil {
		return err
	}
	if err := r.disks.Grow(ctx, volume.Name, bytes); err != nil {
		r.events.Eventf(claim, corev1.EventTypeWarning, "VolumeResizeFailed", "grow volume %s on node %s: %v", volume.Name, r.node, err)
		statusErr := r.updateStatus(ctx, claim, func(status *corev1.PersistentVolumeClaimStatus) {
			failed(status, request, err.Error(), metav1.Now())
		})
		if statusErr != nil {
			klog.FromContext(ctx).Error(statusErr, "Failed to record why a volume did not grow", "claim", klog.KObj(claim))
		}
		return err
	}
	grown, err := r.setCapacity(ctx, volume.Name, *resource.NewQuantity(bytes, resource.BinarySI))
	if err != nil {
		return err
	}
	return r.finish(ctx, claim, grown)
}

// setCapacity tells the API server the size of a volume; it never shrinks it.
func (r *resizer) setCapacity(ctx context.Context, name string, capacity resource.Quantity) (*corev1.PersistentVolume, error) {
	var updated *corev1.PersistentVolume
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		volume, err := r.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		updated = volume
		if volume.Spec.Capacity.Storage().Cmp(capacity) >= 0 {
			return nil
		}
		volume.Spec.Capacity[corev1.ResourceStorage] = capacity
		updated, err = r.client.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record capacity of volume %s: %w", name, err)
	}
	return updated, nil
}

func (r *resizer) finish(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	capacity := volume.Spec.Capacity[corev1.ResourceStorage]
	grew := claim.Status.Capacity.Storage().Cmp(capacity) < 0
	err := r.updateStatus(ctx, claim, func(status *corev1.PersistentVolumeClaimStatus) { settled(status, capacity) })
	if err == nil && grew {
		r.events.Eventf(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Volume and file system have %s", capacity.String())
	}
	return err
}

// updateStatus changes the status of the claim as the API server has it now.
func (r *resizer) updateStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaimStatus)) error {
	claims := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := current.Status.DeepCopy()
		change(&current.Status)
		if current.UID != claim.UID || equality.Semantic.DeepEqual(before, &current.Status) {
			return nil
		}
		_, err = claims.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("record state of claim %s: %w", klog.KObj(claim), err)
	}
	return nil
}

const (
	// retryMin and retryMax bound the time between attempts that fail.
	retryMin = time.Second
	retryMax = 30 * time.Second
)
