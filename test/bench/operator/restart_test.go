package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/bench/figures"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/localcluster"
	"github.com/acme/pg-operator/test/world"
)

// many clusters are restarted over, of one instance each.
const many = 500

// BenchmarkRestart restarts the operator over many clusters at rest. One was edited while no operator ran, another is
// edited while the backlog is worked off: both come before it. Nothing else changes.
func BenchmarkRestart(b *testing.B) {
	plane := controlplane.During(b, controlplane.Options{})
	namespace := plane.Namespace(b)
	w := world.Start(b, plane, namespace)
	w.With(func() { w.Issues = true })
	binary := build(b, plane)
	process := start(b, plane, binary)
	converge(b, plane, namespace)
	figures.Value(fmt.Sprintf("operator, resident memory at %d clusters", many), process.rss(b, "VmRSS"), "MiB")
	process.stop(b)
	w.With(func() { w.Frozen = true })

	early, late := name(many/2), name(many-1)
	edit(b, plane, namespace, early)
	before, sent := versions(b, plane, namespace), len(requests(b, plane))
	begun := time.Now()
	process = start(b, plane, binary)
	served(b, plane, namespace, early)
	figures.Value("operator, restart to an edit from before it served", time.Since(begun).Seconds(), "s")
	edited := time.Now()
	edit(b, plane, namespace, late)
	served(b, plane, namespace, late)
	figures.Value("operator, edit in the backlog to it served", time.Since(edited).Seconds(), "s")
	if reached := reached(b, plane, sent); reached > many/2 {
		b.Errorf("%d of %d clusters were worked on before the edits were served", reached, many)
	} else {
		figures.Value("operator, clusters worked on before both edits were served", float64(reached), "clusters")
	}
	quiet(b, plane)
	figures.Value(fmt.Sprintf("operator, restart over %d clusters to rest", many), (time.Since(begun) - settled).Seconds(), "s")
	figures.Value("operator, requests of a restart", float64(len(requests(b, plane))-sent)/many, "per cluster")
	figures.Value(fmt.Sprintf("operator, resident memory after a restart over %d clusters", many), process.rss(b, "VmRSS"), "MiB")
	changed := 0
	for object, version := range versions(b, plane, namespace) {
		if before[object] != version && !strings.Contains(object, early) && !strings.Contains(object, late) {
			changed++
			b.Errorf("%s changed from %q to %s", object, before[object], version)
		}
	}
	figures.Value(fmt.Sprintf("operator, objects of unedited clusters changed by a restart, of %d", len(before)), float64(changed), "objects")
}

func name(i int) string { return fmt.Sprintf("db-%03d", i) }

// converge creates the clusters and waits until all are Ready and the operator is at rest.
func converge(b *testing.B, plane *controlplane.ControlPlane, namespace string) {
	b.Helper()
	begun := time.Now()
	for i := range many {
		replicas := int32(1)
		if err := plane.Client.Create(b.Context(), &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i)},
			Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "1Gi"},
		}); err != nil {
			b.Fatal(err)
		}
	}
	wait(b, "all clusters are Ready", func(ctx context.Context) (bool, string) {
		list, ready := &v1alpha1.PostgresClusterList{}, 0
		listed := plane.Client.List(ctx, list, client.InNamespace(namespace))
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return ready == many, fmt.Sprintf("%d are Ready, %v", ready, listed)
	})
	figures.Value(fmt.Sprintf("operator, %d clusters created to all Ready", many), time.Since(begun).Seconds(), "s")
	quiet(b, plane)
}

func wait(b *testing.B, what string, done func(context.Context) (bool, string)) {
	b.Helper()
	if _, err := localcluster.Wait(b.Context(), waitTimeout, what, done); err != nil {
		b.Fatal(err)
	}
}

// edit changes a setting that shows in the cluster's ConfigMap.
func edit(b *testing.B, plane *controlplane.ControlPlane, namespace, name string) {
	b.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parameters":{"work_mem":"7MB"}}}`))
	cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := plane.Client.Patch(b.Context(), cluster, patch); err != nil {
		b.Fatal(err)
	}
}

// served waits until a cluster's agents are told of its edit.
func served(b *testing.B, plane *controlplane.ControlPlane, namespace, name string) {
	b.Helper()
	wait(b, "the edit of "+name+" reaches its agents", func(ctx context.Context) (bool, string) {
		config := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: namespace, Name: naming.Cluster(name).ConfigMap()}
		err := plane.Client.Get(ctx, key, config)
		return strings.Contains(config.Data[naming.ConfigMapKey], "7MB"), fmt.Sprint(err)
	})
}

// reached counts the clusters that the operator has sent applies for since a number of requests ago.
func reached(b *testing.B, plane *controlplane.ControlPlane, sent int) int {
	b.Helper()
	found := map[string]bool{}
	for _, event := range requests(b, plane)[sent:] {
		if event.Verb == "patch" && event.ObjectRef != nil && strings.HasPrefix(event.ObjectRef.Name, "db-") {
			found[event.ObjectRef.Name[:len(name(0))]] = true
		}
	}
	return len(found)
}

// versions are the resourceVersions of the clusters and of their children, volumes included.
func versions(b *testing.B, plane *controlplane.ControlPlane, namespace string) map[string]string {
	b.Helper()
	found := map[string]string{}
	for _, kind := range []string{
		"v1/ServiceAccount", "v1/Secret", "v1/ConfigMap", "v1/Service", "v1/PersistentVolumeClaim", "v1/Pod",
		"rbac.authorization.k8s.io/v1/Role", "rbac.authorization.k8s.io/v1/RoleBinding", "apps/v1/StatefulSet",
		"policy/v1/PodDisruptionBudget", "networking.k8s.io/v1/NetworkPolicy", "discovery.k8s.io/v1/EndpointSlice",
		"coordination.k8s.io/v1/Lease", "cert-manager.io/v1/Issuer", "cert-manager.io/v1/Certificate",
		"db.example.com/v1alpha1/PostgresCluster",
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.APIVersion, list.Kind = kind[:strings.LastIndex(kind, "/")], kind[strings.LastIndex(kind, "/")+1:]+"List"
		if err := plane.Client.List(b.Context(), list, client.InNamespace(namespace)); err != nil {
			b.Fatal(err)
		}
		for i := range list.Items {
			found[kind+" "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	}
	return found
}
