// Package snapshot holds all observed facts of one cluster and answers
// questions about them. A question that may have no answer returns
// (value, known): unknown is never read as no.
package snapshot

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/outcome"
)

// Cluster is what was observed of one PostgresCluster. Its objects are shared with the cache: read only.
type Cluster struct {
	// Object is the cluster with defaults filled in, in memory only.
	Object *v1alpha1.PostgresCluster
	// Invalid are the rules of admission that the spec breaks.
	Invalid field.ErrorList
	// Children are the live objects that carry the cluster's label and are not controlled by somebody else.
	Children map[outcome.Key]metav1.Object
	// StatefulSet is nil when there is none.
	StatefulSet *appsv1.StatefulSet
	// Instances that have a pod or a volume claim, by ordinal.
	Instances []Instance
	// Leaving are pods with names of instances that are being deleted while there is no StatefulSet; whose they are does not
	// matter.
	Leaving []*corev1.Pod
	// CertManager is false when the API server does not know cert-manager's kinds.
	CertManager bool
	// Certificates of the cluster, by name.
	Certificates []*cmv1.Certificate
	// StorageClasses are the names of all StorageClasses; DefaultStorageClass is the default one's, if there is one.
	StorageClasses      []string
	DefaultStorageClass string
	// Quotas of the cluster's namespace.
	Quotas []*corev1.ResourceQuota
	// Refusals are what other controllers could not create for this cluster; read live, and only when something is missing.
	Refusals []Refusal
}

// Refusal is an object that another controller could not create.
type Refusal struct {
	// Object such as `Pod` or `PersistentVolumeClaim "data-x-0"`.
	Object string
	// Message of that controller.
	Message string
	// Image that could not be pulled for this Instance; Message is empty then.
	Image    string
	Instance string
}

// Instance is what was observed of one instance.
type Instance struct {
	Name    string
	Ordinal int32
	// Pod, Claim and Report are nil when absent.
	Pod    *corev1.Pod
	Claim  *corev1.PersistentVolumeClaim
	Report *contract.Report
}

// Names derives the names of the cluster's objects.
func (c *Cluster) Names() naming.Cluster { return naming.Cluster(c.Object.Name) }

// Deleting says that the cluster is being deleted.
func (c *Cluster) Deleting() bool { return !c.Object.DeletionTimestamp.IsZero() }

// WantedReplicas is spec.replicas.
func (c *Cluster) WantedReplicas() int32 {
	if c.Object.Spec.Replicas == nil {
		return 1
	}
	return *c.Object.Spec.Replicas
}

// LiveReplicas is how many instances there are to be by the live StatefulSet; while there is none, by its pods.
func (c *Cluster) LiveReplicas() int32 {
	if c.StatefulSet != nil {
		if c.StatefulSet.Spec.Replicas == nil {
			return 1
		}
		return *c.StatefulSet.Spec.Replicas
	}
	replicas := int32(0)
	for _, instance := range c.Instances {
		if instance.Pod != nil && !instance.Terminating() {
			replicas = max(replicas, instance.Ordinal+1)
		}
	}
	return replicas
}

// Instance finds an instance by its ordinal.
func (c *Cluster) Instance(ordinal int32) (Instance, bool) {
	for i := range c.Instances {
		if c.Instances[i].Ordinal == ordinal {
			return c.Instances[i], true
		}
	}
	return Instance{}, false
}

// Primary is the instance that says it is the primary in the highest term. It is unknown when none says so, or two
// do in the same term.
func (c *Cluster) Primary() (primary Instance, known bool) {
	for _, candidate := range c.Instances {
		if candidate.Pod == nil || candidate.Report == nil || candidate.Report.Role != contract.RolePrimary {
			continue
		}
		switch {
		case primary.Report == nil || candidate.Report.Term > primary.Report.Term:
			primary, known = candidate, true
		case candidate.Report.Term == primary.Report.Term:
			known = false
		}
	}
	return primary, known
}

// LeaseMissing says that an instance cannot find the primary lock.
func (c *Cluster) LeaseMissing() bool {
	return slices.ContainsFunc(c.Instances, func(i Instance) bool { return i.Report != nil && i.Report.LeaseMissing })
}

// SystemID is the identifier of the cluster's data: the recorded one, else that of volumes kept from an earlier
// cluster of this name, else what instances report.
func (c *Cluster) SystemID() (id string, known bool) {
	if c.Object.Status.SystemID != "" {
		return c.Object.Status.SystemID, true
	}
	for _, instance := range c.Instances {
		if id = instance.claimAnnotation(naming.AnnotationSystemID); id != "" {
			return id, true
		}
	}
	if primary, ok := c.Primary(); ok && primary.Report.SystemID != "" {
		return primary.Report.SystemID, true
	}
	for _, instance := range c.Instances {
		if instance.Report != nil && instance.Report.SystemID != "" {
			return instance.Report.SystemID, true
		}
	}
	return "", false
}

// DataVersion is the major version of the cluster's data.
func (c *Cluster) DataVersion() (major string, known bool) {
	if primary, ok := c.Primary(); ok && primary.Report.DataVersion != "" {
		return primary.Report.DataVersion, true
	}
	if c.Object.Status.Version != "" {
		return c.Object.Status.Version, true
	}
	for _, instance := range c.Instances {
		if instance.Report != nil && instance.Report.DataVersion != "" {
			return instance.Report.DataVersion, true
		}
	}
	for _, instance := range c.Instances {
		if major = instance.claimAnnotation(naming.AnnotationDataVersion); major != "" {
			return major, true
		}
	}
	return "", false
}

// ProvisionedStorage is the smallest capacity among the volumes of the wanted instances.
func (c *Cluster) ProvisionedStorage() (size resource.Quantity, known bool) {
	for _, instance := range c.Instances {
		capacity, ok := instance.Capacity()
		if !ok || instance.Ordinal >= c.WantedReplicas() {
			continue
		}
		if !known || capacity.Cmp(size) < 0 {
			size, known = capacity, true
		}
	}
	return size, known
}

// StatefulSetObserved says that the StatefulSet's controller has seen its present spec.
func (c *Cluster) StatefulSetObserved() bool {
	return c.StatefulSet != nil && c.StatefulSet.Status.ObservedGeneration >= c.StatefulSet.Generation
}

// RenderedGeneration is the generation of this very cluster that the live StatefulSet was rendered from.
func (c *Cluster) RenderedGeneration() (generation int64, known bool) {
	if c.StatefulSet == nil || !ControlledBy(c.StatefulSet, c.Object.UID) {
		return 0, false
	}
	generation, err := strconv.ParseInt(c.StatefulSet.Annotations[naming.AnnotationGeneration], 10, 64)
	return generation, err == nil
}

// Volumes are the fields of a spec that cannot simply change, because volumes live with them.
type Volumes struct {
	Storage          string  `json:"storage"`
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// RenderedVolumes is what the spec said of volumes that the live StatefulSet was rendered from. Anybody who may write
// StatefulSets can change the annotation that tells it, but not the template of the claims: its class is the spec's, and
// its size is at least that.
func (c *Cluster) RenderedVolumes() (volumes Volumes, known bool) {
	if c.StatefulSet == nil {
		return Volumes{}, false
	}
	err := json.Unmarshal([]byte(c.StatefulSet.Annotations[naming.AnnotationVolumes]), &volumes)
	for _, template := range c.StatefulSet.Spec.VolumeClaimTemplates {
		volumes.StorageClassName = template.Spec.StorageClassName
		most := template.Spec.Resources.Requests[corev1.ResourceStorage]
		if told, wrong := resource.ParseQuantity(volumes.Storage); wrong == nil && told.Cmp(most) > 0 {
			volumes.Storage = most.String()
		}
	}
	return volumes, err == nil
}

// ControlledBy says that an object's controller has a UID.
func ControlledBy(object metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.UID == uid
}

// Sort brings instances and certificates into a stable order.
func (c *Cluster) Sort() {
	slices.SortFunc(c.Instances, func(a, b Instance) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	slices.SortFunc(c.Certificates, func(a, b *cmv1.Certificate) int { return cmp.Compare(a.Name, b.Name) })
}

// Missing says that fewer pods or bound volumes exist than wanted, or that a pod waits for its container, and so that
// another controller or the kubelet may have something to say about it.
func (c *Cluster) Missing(replicas int32) bool {
	if c.StatefulSet == nil {
		return false
	}
	for ordinal := range replicas {
		instance, ok := c.Instance(ordinal)
		if !ok || instance.Pod == nil || instance.Claim == nil || instance.Claim.Status.Phase != corev1.ClaimBound ||
			instance.Waiting() {
			return true
		}
	}
	return false
}
