package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const selectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// provisioner makes and removes the volumes of one node.
type provisioner struct {
	node  string
	disks *Disks
}

var (
	_ controller.Provisioner   = &provisioner{}
	_ controller.Qualifier     = &provisioner{}
	_ controller.DeletionGuard = &provisioner{}
)

// ShouldProvision leaves claims of other nodes to their provisioners. Claims
// without a node are taken, to be refused where their owner sees it.
func (p *provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	selected := claim.Annotations[selectedNodeAnnotation]
	return selected == p.node || selected == ""
}

// Provision makes a volume; a repeated call finds the same one.
func (p *provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if reason := refusal(options.PVC, options.SelectedNodeName); reason != "" {
		return nil, controller.ProvisioningFinished, errors.New(reason)
	}
	if options.SelectedNodeName != p.node {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the claim belongs to node " + options.SelectedNodeName}
	}
	bytes := sizeFor(options.PVC.Spec.Resources.Requests[corev1.ResourceStorage])
	if err := p.disks.Create(ctx, options.PVName, bytes); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("create volume on node %s: %w", p.node, err)
	}
	return newVolume(options.PVName, p.node, p.disks.Path(options.PVName), bytes, options.PVC, reclaimPolicy(options.StorageClass)),
		controller.ProvisioningFinished, nil
}

func reclaimPolicy(class *storagev1.StorageClass) corev1.PersistentVolumeReclaimPolicy {
	if class.ReclaimPolicy == nil {
		return corev1.PersistentVolumeReclaimDelete
	}
	return *class.ReclaimPolicy
}

// ShouldDelete leaves volumes of other nodes to their provisioners.
func (p *provisioner) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	return belongsTo(volume, p.node)
}

// Delete removes a volume with its content.
func (p *provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	return p.disks.Delete(ctx, volume.Name)
}
