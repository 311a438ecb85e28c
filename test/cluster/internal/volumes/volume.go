package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ProvisionerName is the provisioner that storage classes name.
	ProvisionerName = "local.db.example.com/xfs"
	// MinBytes is the smallest file system mkfs.xfs makes (300 MB, rounded up
	// to MiB).
	MinBytes int64 = 300 << 20

	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

// sizeFor is the size in bytes of the volume that serves a request: whole MiB,
// and at least MinBytes.
func sizeFor(request resource.Quantity) int64 {
	const mebibyte = 1 << 20
	value := request.Value()
	if value <= MinBytes {
		return MinBytes
	}
	if rest := value % mebibyte; rest != 0 {
		value += mebibyte - rest
	}
	return value
}

// refusal says why a claim cannot be served at all; empty means that it can.
func refusal(claim *corev1.PersistentVolumeClaim, selectedNode string) string {
	local := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	for _, mode := range claim.Spec.AccessModes {
		if !slices.Contains(local, mode) {
			return fmt.Sprintf("access mode %s is not possible because a volume is mounted on one node; use ReadWriteOnce or ReadWriteOncePod", mode)
		}
	}
	switch {
	case selectedNode == "":
		return "no node was selected: volumes belong to one node, so the StorageClass needs volumeBindingMode WaitForFirstConsumer"
	case claim.Spec.Selector != nil:
		return "spec.selector is not supported: a new volume matches no selector; remove it"
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return "spec.dataSource is not supported: volumes start empty; remove it"
	}
	return ""
}

// newVolume describes a volume of the node as the API server is to know it.
func newVolume(name, node, path string, bytes int64, claim *corev1.PersistentVolumeClaim, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	filesystem := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: policy,
			VolumeMode:                    &filesystem,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}}}},
			}},
		},
	}
}

// belongsTo says whether newVolume made the volume for the node.
func belongsTo(volume *corev1.PersistentVolume, node string) bool {
	if volume.Annotations[provisionedBy] != ProvisionerName || volume.Spec.Local == nil ||
		volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == corev1.LabelHostname && slices.Contains(expression.Values, node) {
				return true
			}
		}
	}
	return false
}
