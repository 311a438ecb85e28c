package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/test/chaos/host"
	"github.com/acme/pg-operator/test/localcluster"
)

// readyTimeout bounds how long a cluster takes until all its instances run.
const readyTimeout = 3 * time.Minute

// bed is one PostgresCluster that faults are tried on.
type bed struct {
	cluster   *localcluster.Cluster
	namespace string
	naming.Cluster
	instances int32
}

// newBed makes a PostgresCluster of its own namespace; nodes are where its instances may run, all when empty.
func newBed(t *testing.T, s suite) *bed {
	t.Helper()
	b := &bed{cluster: s.cluster, namespace: s.cluster.Namespace(t, "chaos"), Cluster: "db", instances: s.instances}
	object := &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: string(b.Cluster)},
		Spec: v1alpha1.PostgresClusterSpec{
			Replicas: &s.instances, Version: "17", Storage: "1Gi",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
			Parameters: map[string]string{"shared_buffers": "16MB", "max_connections": "100"},
		},
	}
	if len(s.nodes) > 0 {
		spread(object, s.nodes)
	}
	if s.mode == modeRequired {
		object.Spec.Synchronous = &v1alpha1.SynchronousReplication{
			Mode: v1alpha1.SynchronousModeQuorum, Durability: v1alpha1.DurabilityRequired,
		}
	}
	if err := b.cluster.Client.Create(t.Context(), object); err != nil {
		t.Fatalf("create the PostgresCluster: %v", err)
	}
	if _, _, err := b.awaitHealthy(t.Context(), readyTimeout, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// spread keeps the instances on the given nodes, as equally as possible.
func spread(object *v1alpha1.PostgresCluster, nodes []string) {
	object.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes}},
		}}},
	}}
	object.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: naming.Cluster(object.Name).SelectorLabels()},
	}}
}

func (b *bed) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: b.namespace, Name: name}
}

func (b *bed) names() []string {
	var names []string
	for ordinal := range b.instances {
		names = append(names, b.Instance(ordinal))
	}
	return names
}

// others are the instances but one.
func (b *bed) others(instance string) []string {
	var names []string
	for _, name := range b.names() {
		if name != instance {
			names = append(names, name)
		}
	}
	return names
}

// config connects as the application through a Service.
func (b *bed) config(ctx context.Context) (*pgx.ConnConfig, error) {
	return b.cluster.Application(ctx, b.key(string(b.Cluster)), b.ServiceReadWrite())
}

func (b *bed) pod(ctx context.Context, instance string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, b.cluster.Client.Get(ctx, b.key(instance), pod)
}

// lease is who holds the Lease, and in which term.
func (b *bed) lease(ctx context.Context) (holder string, term int32, err error) {
	object := &coordinationv1.Lease{}
	if err = b.cluster.Client.Get(ctx, b.key(b.Lease()), object); err != nil {
		return "", 0, err
	}
	if object.Spec.HolderIdentity != nil {
		holder = lease.Instance(*object.Spec.HolderIdentity)
	}
	if object.Spec.LeaseTransitions != nil {
		term = *object.Spec.LeaseTransitions
	}
	return holder, term, nil
}

// container of an instance, as this machine sees it.
func (b *bed) container(ctx context.Context, instance string) (host.Container, error) {
	pod, err := b.pod(ctx, instance)
	if err != nil {
		return host.Container{}, err
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == naming.ContainerPostgres {
			return host.Find(status.ContainerID)
		}
	}
	return host.Container{}, errors.New(instance + " has no container " + naming.ContainerPostgres)
}

const (
	// settled is how long all must have been well before it is believed: what broke an instance does not show at once.
	settled = 3 * time.Second
	// answering is how long an instance that is well may take to answer.
	answering = 2 * time.Second
)

// awaitHealthy waits until one instance is the primary of the present term and all others stream, as they report, and,
// with looks, answer queries, and until that has lasted for a while. It returns the primary, and since when.
func (b *bed) awaitHealthy(ctx context.Context, timeout time.Duration, looks func() map[string]int) (primary string, since time.Time, err error) {
	p := pulse{at: map[string]time.Time{}}
	_, err = localcluster.Wait(ctx, timeout, "all instances run", func(ctx context.Context) (bool, string) {
		looked := time.Now()
		now, seen := b.healthy(ctx)
		if now != "" && looks != nil {
			if silent := p.silent(looked, looks(), b.names()); silent != "" {
				now, seen = "", silent+" does not answer"
			}
		}
		if now == "" || now != primary {
			primary, since = now, looked
		}
		if now == "" {
			return false, seen
		}
		return looks == nil || looked.Sub(since) >= settled, "all run for " + looked.Sub(since).String()
	})
	return primary, since, err
}

// pulse remembers when each instance was last seen to have answered.
type pulse struct {
	counts map[string]int
	at     map[string]time.Time
}

// silent is an instance that has not answered lately, by how many answers there are from each.
func (p *pulse) silent(now time.Time, counts map[string]int, instances []string) string {
	found := ""
	for _, instance := range instances {
		if p.counts != nil && counts[instance] > p.counts[instance] {
			p.at[instance] = now
		}
		if now.Sub(p.at[instance]) > answering {
			found = instance
		}
	}
	p.counts = counts
	return found
}

// healthy returns the primary if all instances run, or what is not right.
func (b *bed) healthy(ctx context.Context) (primary, seen string) {
	holder, term, err := b.lease(ctx)
	if err != nil {
		return "", err.Error()
	}
	for _, instance := range b.names() {
		pod, err := b.pod(ctx, instance)
		if err != nil {
			return "", err.Error()
		}
		report := contract.ParseReport(pod.Annotations[naming.AnnotationReport])
		role := contract.RoleReplica
		if instance == holder {
			role = contract.RolePrimary
		}
		switch {
		case report == nil:
			return "", instance + " reports nothing"
		case pod.DeletionTimestamp != nil:
			return "", instance + " is being deleted"
		case report.State != contract.StateRunning || report.Role != role || report.Term != term:
			return "", fmt.Sprintf("%s is %s %s of term %d: %s; %s holds the Lease in term %d",
				instance, report.State, report.Role, report.Term, report.Message, holder, term)
		}
	}
	if holder == "" {
		return "", "nobody holds the Lease"
	}
	return holder, ""
}

// delete deletes a pod with a grace period, the usual one if negative.
func (b *bed) delete(ctx context.Context, instance string, grace int64) error {
	pod, err := b.pod(ctx, instance)
	if err != nil {
		return err
	}
	var options []client.DeleteOption
	if grace >= 0 {
		options = append(options, client.GracePeriodSeconds(grace))
	}
	return b.cluster.Client.Delete(ctx, pod, options...)
}
