package volumes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Run mounts the volumes the node already has, then provisions, grows and
// deletes volumes of the node until the context ends.
func Run(ctx context.Context, client kubernetes.Interface, node string, disks *Disks) error {
	logger := klog.FromContext(ctx)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: ProvisionerName, Host: node})

	if err := restore(ctx, client, node, disks, events); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, controller.DefaultResyncPeriod)
	resizer, err := newResizer(client, factory, node, disks, events)
	if err != nil {
		return err
	}
	provisioning := controller.NewProvisionController(ctx, client, ProvisionerName, &provisioner{node: node, disks: disks},
		controller.LeaderElection(false), // each node has one process, for its own volumes only
		controller.AddFinalizer(true),    // a volume removed by hand still takes its image along
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax)),
		controller.ClaimsInformer(factory.Core().V1().PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(factory.Storage().V1().StorageClasses().Informer()),
	)
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("read %s from the API server: %w", kind, context.Cause(ctx))
		}
	}
	var group wait.Group
	group.StartWithContext(ctx, resizer.run)
	group.StartWithContext(ctx, provisioning.Run)
	logger.Info("Serving volumes", "node", node, "provisioner", ProvisionerName)
	group.Wait()
	factory.Shutdown()
	return nil
}

// restore mounts the volumes of the node after the machine or this program was
// stopped. One that cannot be mounted does not keep the others from it; its
// pods wait, and its volume has an event.
func restore(ctx context.Context, client kubernetes.Interface, node string, disks *Disks, events record.EventRecorder) error {
	logger := klog.FromContext(ctx)
	var volumes *corev1.PersistentVolumeList
	list := func(ctx context.Context) (bool, error) {
		found, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			logger.Info("Waiting for the API server", "reason", err.Error())
			return false, nil
		}
		volumes = found
		return true, nil
	}
	if err := wait.PollUntilContextCancel(ctx, time.Second, true, list); err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if !belongsTo(volume, node) || volume.DeletionTimestamp != nil {
			continue
		}
		if err := disks.Mount(ctx, volume.Name); err != nil {
			logger.Error(err, "Failed to mount volume", "volume", volume.Name)
			events.Eventf(volume, corev1.EventTypeWarning, "MountFailed", "node %s cannot mount the volume: %v", node, err)
		}
	}
	return nil
}
