package reconciler

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

// memories hold one memory per cluster.
type memories struct {
	mu sync.Mutex
	by map[types.NamespacedName]*memory
}

// memory is what is remembered of one cluster between passes: nothing but what saves calls. The work queue runs one
// pass of a cluster at a time.
type memory struct {
	uid     types.UID
	started time.Time
	// fingerprint of the facts of the last pass that found nothing to do, and until when that holds.
	fingerprint uint64
	until       time.Time
	// stored is the last status written and the resourceVersion that it made.
	stored   *v1alpha1.PostgresClusterStatus
	storedRV string
	storedAt time.Time
	// untold are the fields taken back of which the stored status does not tell yet.
	untold []outcome.Disputed
	// removed is the pod that was deleted last, and when.
	removed   types.UID
	removedAt time.Time
}

func (r *Reconciler) remember(name types.NamespacedName, cluster *v1alpha1.PostgresCluster) *memory {
	r.memories.mu.Lock()
	defer r.memories.mu.Unlock()
	m := r.memories.by[name]
	if m != nil && m.uid != cluster.UID {
		r.dropLocked(name, m)
		m = nil
	}
	if m == nil {
		m = &memory{uid: cluster.UID, started: r.now()}
		if r.memories.by == nil {
			r.memories.by = map[types.NamespacedName]*memory{}
		}
		r.memories.by[name] = m
	}
	return m
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.memories.mu.Lock()
	defer r.memories.mu.Unlock()
	if m := r.memories.by[name]; m != nil {
		r.dropLocked(name, m)
	}
}

func (r *Reconciler) dropLocked(name types.NamespacedName, m *memory) {
	r.applier.Forget(m.uid)
	r.observer.Forget(m.uid)
	clusterReady.DeleteLabelValues(name.Namespace, name.Name)
	delete(r.memories.by, name)
}

// quiet says that nothing changed since a pass that found nothing to do, and when that pass wanted to look again.
func (m *memory) quiet(fingerprint uint64, now time.Time) (wait time.Duration, quiet bool) {
	if m.fingerprint != fingerprint || !now.Before(m.until) {
		return 0, false
	}
	return m.until.Sub(now), true
}

func (m *memory) rest(fingerprint uint64, until time.Time) {
	m.fingerprint, m.until = fingerprint, until
}

// deletionUnseen says that the cache does not show yet that a pod was deleted: what it shows of the cluster is not so any more.
func (m *memory) deletionUnseen(s *snapshot.Cluster, now time.Time) bool {
	return m.removed != "" && now.Sub(m.removedAt) < apply.CacheLag &&
		slices.ContainsFunc(s.Instances, func(i snapshot.Instance) bool {
			return i.Pod != nil && i.Pod.UID == m.removed && !i.Terminating()
		})
}

// newestStatus puts the status that was written last in the place of an older one from the cache.
func (m *memory) newestStatus(cluster *v1alpha1.PostgresCluster) {
	if m.stored == nil {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(cluster.ResourceVersion, m.storedRV); err == nil && order < 0 {
		m.stored.DeepCopyInto(&cluster.Status)
		cluster.ResourceVersion = m.storedRV
	}
}

// detailPeriod is how often mere details of a status are written at most: an instance that starts goes through many.
const detailPeriod = time.Second

// detailsOnly says that two statuses say the same where people and programs wait for it.
func detailsOnly(a, b *v1alpha1.PostgresClusterStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.Primary != b.Primary || !sameMove(a.Switchover, b.Switchover) ||
		!sameMove(a.HandOver, b.HandOver) || len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for i := range a.Conditions {
		if a.Conditions[i].Type != b.Conditions[i].Type || a.Conditions[i].Status != b.Conditions[i].Status ||
			a.Conditions[i].Reason != b.Conditions[i].Reason {
			return false
		}
	}
	return true
}

// sameMove says that a planned change of primary is as far as it was: the next pass carries on what is stored.
func sameMove(a, b *v1alpha1.SwitchoverStatus) bool {
	return a == b || a != nil && b != nil && a.Request == b.Request && a.State == b.State && a.Term == b.Term
}

// statusWriter is the only thing done to a cluster itself.
type statusWriter interface {
	Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error
}

// stored is what became of a status.
type stored int

const (
	// storedSame: the stored status says it already.
	storedSame stored = iota
	// storedNow: it was written.
	storedNow
	// storedLater: it is still to be written.
	storedLater
)

// +kubebuilder:rbac:groups=db.example.com,resources=postgresclusters/status,verbs=patch

// storeStatus writes a status that differs from the stored one. That the cluster is gone is no error.
func (r *Reconciler) storeStatus(
	ctx context.Context, cluster *v1alpha1.PostgresCluster, computed v1alpha1.PostgresClusterStatus, m *memory,
) (stored, error) {
	live := cluster.Status
	live.Conditions = status.Own(live.Conditions)
	if equality.Semantic.DeepEqual(live, computed) {
		m.untold = nil
		return storedSame, nil
	}
	if m.stored != nil && r.now().Sub(m.storedAt) < detailPeriod && detailsOnly(&live, &computed) {
		return storedLater, nil
	}
	configuration := status.Configuration(cluster, &computed)
	err := r.status.Apply(ctx, configuration, client.FieldOwner(naming.FieldManager), client.ForceOwnership)
	switch class := apply.Classify(err); class {
	case "":
		m.stored, m.storedRV, m.storedAt = computed.DeepCopy(), *configuration.ResourceVersion, r.now()
		m.untold = nil
		return storedNow, nil
	case outcome.ClassStale:
		return storedLater, nil // Somebody changed the cluster at the same time; the event of that starts another pass.
	case outcome.ClassGone, outcome.ClassReplaced:
		return storedSame, nil
	default:
		return storedLater, err
	}
}
