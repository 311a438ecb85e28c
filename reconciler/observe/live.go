package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/snapshot"
)

// StorageClassKind is cached by its metadata, which says which class is the default.
var StorageClassKind = storagev1.SchemeGroupVersion.WithKind("StorageClass")

// annotationDefaultClass marks the default StorageClass.
const annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"

// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch

// StorageClasses adds the StorageClasses to a snapshot.
func (o *Observer) StorageClasses(ctx context.Context, s *snapshot.Cluster) error {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(StorageClassKind)
	if err := o.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("listing StorageClasses: %w", err)
	}
	var chosen *metav1.PartialObjectMetadata
	for i := range list.Items {
		class := &list.Items[i]
		s.StorageClasses = append(s.StorageClasses, class.Name)
		if class.Annotations[annotationDefaultClass] == "true" && (chosen == nil || newer(class, chosen)) {
			chosen = class
		}
	}
	if chosen != nil {
		s.DefaultStorageClass = chosen.Name
	}
	return nil
}

// newer is how the API server chooses among several default classes.
func newer(a, b *metav1.PartialObjectMetadata) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// +kubebuilder:rbac:groups="",resources=resourcequotas,verbs=get;list;watch

// Quotas adds the namespace's ResourceQuotas to a snapshot.
func (o *Observer) Quotas(ctx context.Context, s *snapshot.Cluster) error {
	list := corev1.ResourceQuotaList{}
	if err := o.Cache.List(ctx, &list, client.InNamespace(s.Object.Namespace)); err != nil {
		return fmt.Errorf("listing ResourceQuotas: %w", err)
	}
	for i := range list.Items {
		s.Quotas = append(s.Quotas, &list.Items[i])
	}
	return nil
}

// +kubebuilder:rbac:groups="",resources=limitranges,verbs=list

// LimitRanges are the names of a namespace's LimitRanges, which the API server leaves out when one refuses something.
func (o *Observer) LimitRanges(ctx context.Context, namespace string) ([]string, error) {
	list := corev1.LimitRangeList{}
	if err := o.Live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing LimitRanges: %w", err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// refusalPeriod is how often events of one cluster are read at most.
const refusalPeriod = 3 * time.Second

// refusals remembers when events of a cluster were last read, and what they said.
type refusals struct {
	mu   sync.Mutex
	last map[types.UID]refusalRead
}

type refusalRead struct {
	at time.Time
	// observed is the generation of the StatefulSet that its controller had seen.
	observed int64
	found    []snapshot.Refusal
}

// Forget drops what is remembered of a cluster.
func (o *Observer) Forget(cluster types.UID) {
	o.refusals.mu.Lock()
	defer o.refusals.mu.Unlock()
	delete(o.refusals.last, cluster)
}

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// Refusals adds what other controllers could not create for the cluster. They say so in Events only.
func (o *Observer) Refusals(ctx context.Context, s *snapshot.Cluster, now time.Time) error {
	o.refusals.mu.Lock()
	last, known := o.refusals.last[s.Object.UID]
	o.refusals.mu.Unlock()
	observed := int64(0)
	if s.StatefulSet != nil {
		observed = s.StatefulSet.Status.ObservedGeneration
	}
	if !known || last.observed != observed || now.Sub(last.at) >= refusalPeriod {
		found, err := o.readRefusals(ctx, s)
		if err != nil {
			return err
		}
		last = refusalRead{at: now, observed: observed, found: found}
		o.refusals.mu.Lock()
		if o.refusals.last == nil {
			o.refusals.last = map[types.UID]refusalRead{}
		}
		o.refusals.last[s.Object.UID] = last
		o.refusals.mu.Unlock()
	}
	s.Refusals = last.found
	return nil
}

func (o *Observer) readRefusals(ctx context.Context, s *snapshot.Cluster) ([]snapshot.Refusal, error) {
	var found []snapshot.Refusal
	if s.StatefulSet != nil && podsMissing(s) {
		event, err := o.latest(ctx, s.Object.Namespace, client.MatchingFields{
			"involvedObject.kind": "StatefulSet", "involvedObject.name": s.StatefulSet.Name,
		}, func(event *corev1.Event) bool {
			// A pod that could be created since then makes an older failure void.
			return event.InvolvedObject.UID == s.StatefulSet.UID && !strings.Contains(event.Message, conflictText) &&
				(event.Reason == eventFailedCreate || event.Reason == eventSuccessfulCreate)
		})
		if err != nil {
			return nil, err
		}
		if event != nil && event.Reason == eventFailedCreate {
			found = append(found, snapshot.Refusal{Object: "Pod", Message: cause(event.Message)})
		}
	}
	pull, err := o.failedPull(ctx, s)
	if err != nil {
		return nil, err
	}
	found = append(found, pull...)
	claims := map[types.UID]string{}
	for _, instance := range s.Instances {
		if instance.Claim != nil && instance.Claim.Status.Phase == corev1.ClaimPending {
			claims[instance.Claim.UID] = instance.Claim.Name
		}
	}
	if len(claims) == 0 {
		return found, nil
	}
	event, err := o.latest(ctx, s.Object.Namespace, client.MatchingFields{
		"involvedObject.kind": "PersistentVolumeClaim", "reason": "ProvisioningFailed",
	}, func(event *corev1.Event) bool {
		// A conflict of two writers is tried again at once and tells nobody anything.
		return claims[event.InvolvedObject.UID] != "" && !strings.Contains(event.Message, conflictText)
	})
	if err != nil || event == nil {
		return found, err
	}
	return append(found, snapshot.Refusal{
		Object:  fmt.Sprintf("PersistentVolumeClaim %q", event.InvolvedObject.Name),
		Message: event.Message,
	}), nil
}

// The reasons of the StatefulSet controller's events about its pods.
const (
	eventFailedCreate     = "FailedCreate"
	eventSuccessfulCreate = "SuccessfulCreate"
)

// conflictText is in every answer of the API server to a writer that was too late.
const conflictText = "the object has been modified"

// failedPull is the latest image that could not be pulled for a pod that waits. The kubelet says so in an event at
// once, but in the pod's status only when it tries again, 10 to 15 seconds later.
func (o *Observer) failedPull(ctx context.Context, s *snapshot.Cluster) ([]snapshot.Refusal, error) {
	waiting := map[types.UID]bool{}
	for _, instance := range s.Instances {
		if instance.Waiting() {
			waiting[instance.Pod.UID] = true
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	event, err := o.latest(ctx, s.Object.Namespace, client.MatchingFields{
		"involvedObject.kind": "Pod", "reason": "Failed",
	}, func(event *corev1.Event) bool {
		return waiting[event.InvolvedObject.UID] && strings.HasPrefix(event.Message, pullFailure)
	})
	if err != nil || event == nil {
		return nil, err
	}
	// The rest of the text holds addresses and ports that change.
	image, _, _ := strings.Cut(strings.TrimPrefix(event.Message, pullFailure), `"`)
	_, container, _ := strings.Cut(event.InvolvedObject.FieldPath, "{") // spec.containers{postgres}
	return []snapshot.Refusal{{
		Object: fmt.Sprintf("Pod %q, container %s", event.InvolvedObject.Name, strings.TrimSuffix(container, "}")),
		Image:  image, Instance: event.InvolvedObject.Name,
	}}, nil
}

// pullFailure begins the kubelet's event; the image and a quote follow.
const pullFailure = `Failed to pull image "`

func (o *Observer) latest(
	ctx context.Context, namespace string, fields client.MatchingFields, match func(*corev1.Event) bool,
) (*corev1.Event, error) {
	events := corev1.EventList{}
	err := o.Live.List(ctx, &events, client.InNamespace(namespace), fields)
	if err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	matching := slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return !match(&event) })
	if len(matching) == 0 {
		return nil, nil //nolint:nilnil // No event is an answer.
	}
	latest := slices.MaxFunc(matching, func(a, b corev1.Event) int {
		return cmp.Or(eventTime(&a).Compare(eventTime(&b)), strings.Compare(b.Name, a.Name))
	})
	return &latest, nil
}

func eventTime(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if !event.LastTimestamp.IsZero() {
		return event.LastTimestamp.Time
	}
	return event.EventTime.Time
}

// cause is what the API server said, without what the StatefulSet's controller says around it.
func cause(message string) string {
	if _, after, ok := strings.Cut(message, " failed error: "); ok {
		return after
	}
	return message
}

func podsMissing(s *snapshot.Cluster) bool {
	pods := int32(0)
	for _, instance := range s.Instances {
		if instance.Pod != nil {
			pods++
		}
	}
	return s.StatefulSet.Spec.Replicas != nil && pods < *s.StatefulSet.Spec.Replicas
}
