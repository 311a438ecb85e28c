// Package operator measures the operator's process on an API server alone: no
// pod runs, so that many clusters fit.
package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/bench/figures"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/localcluster"
)

const (
	clusters = 100
	// settled is how long the operator must send nothing to be at rest.
	settled = 5 * time.Second
	// waitTimeout: cert-manager issues three certificates per cluster, some two of them a second on a busy machine.
	waitTimeout = 15 * time.Minute
)

// BenchmarkHundredClusters starts the real binary and creates PostgresClusters:
// its memory, and the requests it sends.
func BenchmarkHundredClusters(b *testing.B) {
	plane := controlplane.During(b, controlplane.Options{CertManager: true})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := plane.Client.Create(b.Context(), namespace); err != nil {
		b.Fatal(err)
	}
	process := start(b, plane, build(b, plane))
	figures.Value("operator, resident memory without clusters", process.rss(b, "VmRSS"), "MiB")

	started := time.Now()
	for i := range clusters {
		replicas := int32(3)
		object := &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: fmt.Sprintf("db-%03d", i)},
			Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "1Gi"},
		}
		if err := plane.Client.Create(b.Context(), object); err != nil {
			b.Fatal(err)
		}
	}
	_, err := localcluster.Wait(b.Context(), waitTimeout, "a StatefulSet per cluster", func(ctx context.Context) (bool, string) {
		sets := &appsv1.StatefulSetList{}
		listed := plane.Client.List(ctx, sets, client.InNamespace(namespace.Name))
		return len(sets.Items) == clusters, fmt.Sprintf("%d StatefulSets, %v", len(sets.Items), listed)
	})
	if err != nil {
		b.Fatal(err)
	}
	figures.Value(fmt.Sprintf("operator, %d clusters created to all StatefulSets applied", clusters), time.Since(started).Seconds(), "s")
	quiet(b, plane)
	figures.Value(fmt.Sprintf("operator, resident memory at %d clusters", clusters), process.rss(b, "VmRSS"), "MiB")
	figures.Value(fmt.Sprintf("operator, highest resident memory at %d clusters", clusters), process.rss(b, "VmHWM"), "MiB")
	report(b, plane)
}

// requests of the operator so far, by its user agent: it runs as the administrator here.
func requests(b *testing.B, plane *controlplane.ControlPlane) []auditv1.Event {
	return plane.AuditEvents(b, func(event *auditv1.Event) bool { return strings.HasPrefix(event.UserAgent, "pg-operator/") })
}

// quiet waits until the operator has sent nothing for a while.
func quiet(b *testing.B, plane *controlplane.ControlPlane) {
	b.Helper()
	count, since := 0, time.Now()
	_, err := localcluster.Wait(b.Context(), waitTimeout, "the operator is at rest", func(context.Context) (bool, string) {
		if now := len(requests(b, plane)); now != count {
			count, since = now, time.Now()
		}
		return time.Since(since) > settled, fmt.Sprintf("%d requests", count)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// report prints the requests by verb and resource, the most frequent first.
func report(b *testing.B, plane *controlplane.ControlPlane) {
	counts, total := map[string]int{}, 0
	for _, event := range requests(b, plane) {
		if event.ObjectRef == nil || event.Verb == "watch" || event.Verb == "list" {
			continue
		}
		name := event.Verb + " " + event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			name += "/" + event.ObjectRef.Subresource
		}
		counts[name]++
		total++
	}
	figures.Value(fmt.Sprintf("operator, requests per cluster to the StatefulSet, %d clusters", clusters), float64(total)/clusters, "requests")
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	for _, name := range names {
		figures.Value("  "+name, float64(counts[name])/clusters, "per cluster")
	}
}
