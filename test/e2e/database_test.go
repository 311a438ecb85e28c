package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/test/localcluster"
)

// Deadlines. They are far beyond the goals (make bench measures those): the
// machine has two cores and several databases at a time.
const (
	readyTimeout = 2 * time.Minute
	// conditionTimeout is the promise for what admission cannot know.
	conditionTimeout = 15 * time.Second
)

// database is one PostgresCluster under test.
type database struct {
	t         *testing.T
	cluster   *localcluster.Cluster
	namespace string
	naming.Cluster
}

// newDatabase makes a namespace and in it a small PostgresCluster that change may alter.
func newDatabase(t *testing.T, cluster *localcluster.Cluster, name string, change func(*v1alpha1.PostgresClusterSpec)) *database {
	t.Helper()
	d := &database{t: t, cluster: cluster, namespace: cluster.Namespace(t, name), Cluster: naming.Cluster(name)}
	d.create(change)
	return d
}

// create makes the PostgresCluster in the database's namespace.
func (d *database) create(change func(*v1alpha1.PostgresClusterSpec)) {
	d.t.Helper()
	if err := d.cluster.Client.Create(d.t.Context(), d.manifest(change)); err != nil {
		d.t.Fatalf("create PostgresCluster %s: %v", d.Cluster, err)
	}
}

func (d *database) manifest(change func(*v1alpha1.PostgresClusterSpec)) *v1alpha1.PostgresCluster {
	replicas := int32(1)
	object := &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: string(d.Cluster)},
		Spec: v1alpha1.PostgresClusterSpec{
			Replicas: &replicas, Version: "17", Storage: "1Gi",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
			Parameters: map[string]string{"shared_buffers": "16MB", "max_connections": "40"},
		},
	}
	if change != nil {
		change(&object.Spec)
	}
	return object
}

// replicas changes a spec's number of instances.
func replicas(n int32) func(*v1alpha1.PostgresClusterSpec) {
	return func(spec *v1alpha1.PostgresClusterSpec) { spec.Replicas = &n }
}

func (d *database) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: d.namespace, Name: name}
}

// get reads an object of the database's namespace.
func (d *database) get(name string, object client.Object) {
	d.t.Helper()
	if err := d.cluster.Client.Get(d.t.Context(), d.key(name), object); err != nil {
		d.t.Fatalf("get %T %s: %v", object, name, err)
	}
}

func (d *database) object() *v1alpha1.PostgresCluster {
	d.t.Helper()
	object := &v1alpha1.PostgresCluster{}
	d.get(string(d.Cluster), object)
	return object
}

func (d *database) pod(ordinal int32) *corev1.Pod {
	d.t.Helper()
	pod := &corev1.Pod{}
	d.get(d.Instance(ordinal), pod)
	return pod
}

func (d *database) claim(ordinal int32) *corev1.PersistentVolumeClaim {
	d.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	d.get(d.PVC(ordinal), claim)
	return claim
}

func (d *database) statefulSet() *appsv1.StatefulSet {
	d.t.Helper()
	set := &appsv1.StatefulSet{}
	d.get(d.StatefulSet(), set)
	return set
}

// podUIDs identify the pods of the first n instances.
func (d *database) podUIDs(n int32) []types.UID {
	d.t.Helper()
	uids := make([]types.UID, n)
	for ordinal := range n {
		uids[ordinal] = d.pod(ordinal).UID
	}
	return uids
}

// patchSpec merges fields into the spec; the answer is admission's.
func (d *database) patchSpec(fields map[string]any) error {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		d.t.Fatal(err)
	}
	object := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: string(d.Cluster)}}
	return d.cluster.Client.Patch(d.t.Context(), object, client.RawPatch(types.MergePatchType, patch))
}

// mustPatchSpec is patchSpec for a change that is accepted.
func (d *database) mustPatchSpec(fields map[string]any) {
	d.t.Helper()
	if err := d.patchSpec(fields); err != nil {
		d.t.Fatalf("change the spec of %s: %v", d.Cluster, err)
	}
}

// kubectl runs the real kubectl in the database's namespace; a failure ends the test.
func (d *database) kubectl(args ...string) string {
	d.t.Helper()
	text, err := d.cluster.Kubectl(d.t.Context(), append([]string{"-n", d.namespace}, args...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

// exec runs a command in an instance's postgres container.
func (d *database) exec(ctx context.Context, ordinal int32, command ...string) (string, error) {
	args := append([]string{"-n", d.namespace, "exec", d.Instance(ordinal), "-c", naming.ContainerPostgres, "--"}, command...)
	text, err := d.cluster.Kubectl(ctx, args...)
	return strings.TrimSpace(text), err
}

// ask runs a query as the superuser, over the socket inside an instance's pod:
// there is no other way to be the superuser.
func (d *database) ask(ctx context.Context, ordinal int32, query string) (string, error) {
	return d.exec(ctx, ordinal, "psql", "-X", "-U", naming.UserSuperuser, "-h", naming.PathRun, "-d", "postgres", "-Atc", query)
}

// mustAsk is ask for a query that works.
func (d *database) mustAsk(ordinal int32, query string) string {
	d.t.Helper()
	text, err := d.ask(d.t.Context(), ordinal, query)
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

// condition of the PostgresCluster, as text for people too.
func condition(object *v1alpha1.PostgresCluster, kind string) (metav1.Condition, string) {
	found := meta.FindStatusCondition(object.Status.Conditions, kind)
	if found == nil {
		return metav1.Condition{}, "no condition " + kind
	}
	return *found, fmt.Sprintf("%s=%s %s: %s (generation %d of %d)", kind, found.Status, found.Reason, found.Message,
		found.ObservedGeneration, object.Generation)
}

// awaitReady waits until the status of the present spec says that all its instances are ready.
func (d *database) awaitReady(timeout time.Duration) time.Duration {
	d.t.Helper()
	return eventually(d.t, timeout, string(d.Cluster)+" is ready", d.ready)
}

func (d *database) ready(ctx context.Context) (bool, string) {
	object := &v1alpha1.PostgresCluster{}
	if err := d.cluster.Client.Get(ctx, d.key(string(d.Cluster)), object); err != nil {
		return false, err.Error()
	}
	ready, seen := condition(object, v1alpha1.ConditionReady)
	done := ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == object.Generation
	return done, fmt.Sprintf("%s; instances %+v", seen, object.Status.Instances)
}

// awaitTrouble waits for a condition Ready=False of the present spec with a
// reason, whose message holds all of the given words.
func (d *database) awaitTrouble(timeout time.Duration, reason string, words ...string) time.Duration {
	d.t.Helper()
	what := fmt.Sprintf("%s is not ready for %s and says %q", d.Cluster, reason, words)
	return eventually(d.t, timeout, what, func(ctx context.Context) (bool, string) {
		object := &v1alpha1.PostgresCluster{}
		if err := d.cluster.Client.Get(ctx, d.key(string(d.Cluster)), object); err != nil {
			return false, err.Error()
		}
		ready, seen := condition(object, v1alpha1.ConditionReady)
		done := ready.Status == metav1.ConditionFalse && ready.Reason == reason && ready.ObservedGeneration == object.Generation
		for _, word := range words {
			done = done && strings.Contains(ready.Message, word)
		}
		return done, seen
	})
}

// awaitStreaming waits until n replicas stream from the primary; it asks
// PostgreSQL and needs no operator.
func (d *database) awaitStreaming(n int, timeout time.Duration) time.Duration {
	d.t.Helper()
	what := fmt.Sprintf("%d replicas stream from the primary", n)
	return eventually(d.t, timeout, what, func(ctx context.Context) (bool, string) {
		count, err := d.askPrimary(ctx, "select count(*) from pg_stat_replication where state = 'streaming'")
		if err != nil {
			return false, err.Error()
		}
		return count == fmt.Sprint(n), count + " stream"
	})
}

// primary is the ordinal of the instance that holds the Lease.
func (d *database) primary(ctx context.Context) (int32, error) {
	held := &coordinationv1.Lease{}
	if err := d.cluster.Client.Get(ctx, d.key(d.Lease()), held); err != nil {
		return 0, err
	}
	if held.Spec.HolderIdentity != nil {
		if ordinal, ok := d.Ordinal(lease.Instance(*held.Spec.HolderIdentity)); ok {
			return ordinal, nil
		}
	}
	return 0, errors.New("nobody holds the Lease")
}

// mustPrimary is primary when there is one.
func (d *database) mustPrimary() int32 {
	d.t.Helper()
	ordinal, err := d.primary(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return ordinal
}

// askPrimary is ask for whoever is the primary.
func (d *database) askPrimary(ctx context.Context, query string) (string, error) {
	ordinal, err := d.primary(ctx)
	if err != nil {
		return "", err
	}
	return d.ask(ctx, ordinal, query)
}
