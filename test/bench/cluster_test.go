// Package bench measures the operator on the local cluster with real
// PostgreSQL. It asserts nothing: make bench prints its figures.
package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/bench/figures"
	"github.com/acme/pg-operator/test/ledger"
	"github.com/acme/pg-operator/test/localcluster"
)

// Rounds per figure: few, because a round takes many seconds on two cores.
const (
	readyRounds   = 7
	recoverRounds = 7
	// waitTimeout ends a round that does not come to its end.
	waitTimeout = 3 * time.Minute
)

var start = sync.OnceValues(func() (*localcluster.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cluster, err := localcluster.Start(ctx)
	if err != nil {
		return nil, err
	}
	if err := cluster.LoadImage(ctx, "postgres-17"); err != nil {
		return nil, err
	}
	return cluster, cluster.DeployOperator(ctx)
})

// environment is the local cluster with this checkout's operator.
func environment(b *testing.B) *localcluster.Cluster {
	b.Helper()
	if reason := localcluster.Unavailable(); reason != "" {
		b.Skip(reason)
	}
	cluster, err := start()
	if err != nil {
		b.Fatal(err)
	}
	return cluster
}

// BenchmarkApplyToReady is the time from the creation of a PostgresCluster to
// its condition Ready, images present.
func BenchmarkApplyToReady(b *testing.B) {
	cluster := environment(b)
	for _, replicas := range []int32{1, 3} {
		namespace := cluster.Namespace(b, "bench")
		var times []time.Duration
		for round := range readyRounds {
			object := manifest(namespace, fmt.Sprintf("r%d-%d", replicas, round), replicas)
			started := time.Now()
			if err := cluster.Client.Create(b.Context(), object); err != nil {
				b.Fatal(err)
			}
			awaitCluster(b, cluster, object, ready)
			times = append(times, time.Since(started))
			remove(b, cluster, object)
		}
		figures.Durations(fmt.Sprintf("apply to Ready, %d instances", replicas), times)
	}
}

// BenchmarkRecovery is the time from the deletion of a pod to the readiness of
// its successor, and for the primary's the write outage that a client sees.
func BenchmarkRecovery(b *testing.B) {
	cluster := environment(b)
	namespace := cluster.Namespace(b, "bench")
	object := manifest(namespace, "recovery", 2)
	if err := cluster.Client.Create(b.Context(), object); err != nil {
		b.Fatal(err)
	}
	awaitCluster(b, cluster, object, ready)
	names := naming.Cluster(object.Name)
	for _, instance := range []struct {
		role    string
		ordinal int32
	}{{"replica", 1}, {"primary", 0}} {
		var times, outages []time.Duration
		for range recoverRounds {
			writes := write(b, cluster, object)
			times = append(times, replace(b, cluster, namespace, names.Instance(instance.ordinal)))
			awaitCluster(b, cluster, object, ready)
			awaitWrite(b, writes)
			outages = append(outages, writes.LongestGap())
			writes.Stop()
		}
		figures.Durations("pod of the "+instance.role+" deleted to its successor ready", times)
		figures.Durations("pod of the "+instance.role+" deleted, longest time without a write", outages)
	}
}

// write starts a writer through -rw with a new table.
func write(b *testing.B, cluster *localcluster.Cluster, object *v1alpha1.PostgresCluster) *ledger.Ledger {
	b.Helper()
	config, err := cluster.Application(b.Context(), client.ObjectKeyFromObject(object), naming.Cluster(object.Name).ServiceReadWrite())
	if err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	if _, err = conn.Exec(b.Context(), "drop table if exists ledger"); err != nil {
		b.Fatal(err)
	}
	if err = conn.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	writes, err := ledger.Start(context.Background(), ledger.Postgres(config))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(writes.Stop)
	return writes
}

// awaitWrite waits for one more acknowledged write, which ends the outage.
func awaitWrite(b *testing.B, writes *ledger.Ledger) {
	b.Helper()
	before, _ := writes.Acknowledged()
	_, err := localcluster.Wait(b.Context(), waitTimeout, "a write", func(context.Context) (bool, string) {
		now, err := writes.Acknowledged()
		return now > before, fmt.Sprint(err)
	})
	if err != nil {
		b.Fatal(err)
	}
}

func manifest(namespace, name string, replicas int32) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.PostgresClusterSpec{
			Replicas: &replicas, Version: "17", Storage: "1Gi", DeletionPolicy: v1alpha1.DeletionPolicyDelete,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
		},
	}
}

// ready says that the status is of the present spec and that all instances take part.
func ready(object *v1alpha1.PostgresCluster) bool {
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady)
	return condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == object.Generation
}

// awaitCluster waits by a watch, so that times are exact.
func awaitCluster(b *testing.B, cluster *localcluster.Cluster, object *v1alpha1.PostgresCluster, done func(*v1alpha1.PostgresCluster) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), waitTimeout)
	defer cancel()
	list := &v1alpha1.PostgresClusterList{}
	watcher, err := cluster.Client.Watch(ctx, list, client.InNamespace(object.Namespace))
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	last := &v1alpha1.PostgresCluster{}
	for event := range watcher.ResultChan() {
		live, ok := event.Object.(*v1alpha1.PostgresCluster)
		if !ok || live.Name != object.Name {
			continue
		}
		if last = live; done(live) {
			return
		}
	}
	b.Fatalf("%s did not get there in %s: %+v", object.Name, waitTimeout, last.Status.Conditions)
}

// replace deletes a pod and returns how long it takes until another one of the name is ready.
func replace(b *testing.B, cluster *localcluster.Cluster, namespace, name string) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), waitTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	if err := cluster.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
		b.Fatal(err)
	}
	watcher, err := cluster.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	old, started := pod.UID, time.Now()
	if err := cluster.Client.Delete(ctx, pod); err != nil {
		b.Fatal(err)
	}
	for event := range watcher.ResultChan() {
		live, ok := event.Object.(*corev1.Pod)
		if !ok || live.Name != name || live.UID == old {
			continue
		}
		for _, condition := range live.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return time.Since(started)
			}
		}
	}
	b.Fatalf("no ready pod %s in %s", name, waitTimeout)
	return 0
}

// remove deletes a cluster and waits for its end, so that it takes nothing from the next round.
func remove(b *testing.B, cluster *localcluster.Cluster, object *v1alpha1.PostgresCluster) {
	b.Helper()
	if err := cluster.Client.Delete(b.Context(), object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		b.Fatal(err)
	}
	_, err := localcluster.Wait(b.Context(), waitTimeout, object.Name+" is gone", func(ctx context.Context) (bool, string) {
		pods := &corev1.PodList{}
		if err := cluster.Client.List(ctx, pods, client.InNamespace(object.Namespace)); err != nil {
			return false, err.Error()
		}
		return len(pods.Items) == 0, fmt.Sprintf("%d pods", len(pods.Items))
	})
	if err != nil {
		b.Fatal(err)
	}
}
