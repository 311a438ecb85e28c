package api

import (
	"encoding/json"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/render"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/webhooks/rules"
)

// Values of settings that admission may take, in the forms that are hard to carry on.
var (
	settingNames  = []string{"work_mem", "log_line_prefix", "search_path", "max_connections", "shared_buffers", "app.tenant"}
	settingValues = []string{"64MB", "'%m [%p] '", `"$user", public`, "200", "é\\n\"'", ""}
)

// drawValidSpec changes one thing after another and keeps what the rules take, so that specs are valid and say much.
func drawValidSpec(t *rapid.T, cluster *v1alpha1.PostgresCluster) {
	other := drawSpec(t, "spec")
	changes := []func(*v1alpha1.PostgresClusterSpec){
		func(s *v1alpha1.PostgresClusterSpec) { s.Version = other.Version },
		func(s *v1alpha1.PostgresClusterSpec) { s.Storage = other.Storage },
		func(s *v1alpha1.PostgresClusterSpec) { s.Image = other.Image },
		func(s *v1alpha1.PostgresClusterSpec) { s.Replicas = other.Replicas },
		func(s *v1alpha1.PostgresClusterSpec) { s.DeletionPolicy = other.DeletionPolicy },
		func(s *v1alpha1.PostgresClusterSpec) { s.StorageClassName = other.StorageClassName },
		func(s *v1alpha1.PostgresClusterSpec) { s.Resources = other.Resources },
		func(s *v1alpha1.PostgresClusterSpec) {
			s.Parameters = map[string]string{pick(t, "setting", settingNames...): pick(t, "value", settingValues...)}
		},
		func(s *v1alpha1.PostgresClusterSpec) {
			s.NodeSelector = map[string]string{pick(t, "key", labelKeys...): pick(t, "value", labelValues...)}
		},
		func(s *v1alpha1.PostgresClusterSpec) { s.Tolerations = append(s.Tolerations, drawToleration(t)) },
		func(s *v1alpha1.PostgresClusterSpec) { s.Tolerations = append(s.Tolerations, drawToleration(t)) },
		func(s *v1alpha1.PostgresClusterSpec) {
			s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, drawSpread(t))
		},
		func(s *v1alpha1.PostgresClusterSpec) {
			s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, drawSpread(t))
		},
		func(s *v1alpha1.PostgresClusterSpec) { s.Affinity = drawAffinity(t) },
		func(s *v1alpha1.PostgresClusterSpec) {
			s.Resources = corev1.ResourceRequirements{Requests: drawAnyResources(t), Limits: drawAnyResources(t)}
		},
	}
	for _, change := range changes {
		before := *cluster.Spec.DeepCopy()
		change(&cluster.Spec)
		completed := cluster.DeepCopy()
		completed.Default(v1alpha1.Defaults{Version: "17", Storage: "50Gi"})
		if len(rules.ValidateCreate(completed)) > 0 {
			cluster.Spec = before
		}
	}
	cluster.Default(v1alpha1.Defaults{Version: "17", Storage: "50Gi"})
}

var creatableFor = flag.Duration("creatable-for", 12*time.Second,
	"time in which clusters are drawn that are to be created; -rapid.checks and -rapid.seed draw more and others within it")

// TestWhatIsAdmittedCanBeCreated draws valid clusters, renders all their objects, and wants the API server to take each of
// them, and the pods and volumes that they lead to. The namespace has the strictest profile of Pod Security.
func TestWhatIsAdmittedCanBeCreated(t *testing.T) {
	namespace := plane.Namespace(t)
	plane.Kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	names := []string{"a", "orders-db", "a1-2-3", strings.Repeat("a", naming.MaxClusterName)}
	start, drawn, objects := time.Now(), 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		for range 3 {
			if time.Since(start) > *creatableFor {
				return
			}
			cluster := &v1alpha1.PostgresCluster{}
			cluster.Namespace, cluster.Name = namespace, pick(rt, "name", names...)
			cluster.UID, cluster.Generation = "7a1d63a4-0f0c-4b5e-9d1b-0c1f5f1f0001", 1
			drawValidSpec(rt, cluster)
			if errs := rules.ValidateCreate(cluster); len(errs) > 0 {
				rt.Fatalf("the rules refuse what they took bit by bit: %v", errs.ToAggregate())
			}
			objects += tryAll(t, rt, cluster, drawn%10 == 0)
			drawn++
		}
	})
	t.Logf("%d clusters, %d objects in %s", drawn, objects, time.Since(start).Round(time.Millisecond))
	if drawn < 30 {
		t.Errorf("only %d clusters were drawn", drawn)
	}
}

// tryAll sends a cluster's objects as dry runs: all, or those that depend on the spec. It returns their number.
func tryAll(t *testing.T, rt *rapid.T, cluster *v1alpha1.PostgresCluster, all bool) int {
	rt.Helper()
	s := &snapshot.Cluster{Object: cluster, CertManager: true}
	plan := decide.Next(s, decide.Config{
		Images: map[string]string{"15": "postgres:15", "16": "postgres:16", "17": "postgres:17", "18": "postgres:18"}, LeaseDuration: time.Second,
	}, time.Unix(0, 0))
	objects, err := render.Objects(s, plan, render.Config{OperatorImage: "registry.example/operator:1", PostgresUID: 999})
	if err != nil {
		rt.Fatal(err)
	}
	sent := 0
	refuse := func(err error, what string) {
		rt.Helper()
		if sent++; err != nil {
			spec, _ := json.Marshal(cluster.Spec)
			rt.Fatalf("the API server refuses the %s of an admitted cluster %q: %v\n%s", what, cluster.Name, err, spec)
		}
	}
	for _, object := range objects {
		data, failed := json.Marshal(object)
		content := &unstructured.Unstructured{}
		if err = errors.Join(failed, json.Unmarshal(data, &content.Object)); err != nil {
			rt.Fatal(err)
		}
		kind := content.GetKind()
		if all || kind == "StatefulSet" || kind == "ConfigMap" || content.GetName() == s.Names().PVC(0) {
			refuse(plane.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(content),
				client.FieldOwner(naming.FieldManager), client.DryRunAll), kind)
		}
	}
	set, ok := objects[len(objects)-1].(*appsv1ac.StatefulSetApplyConfiguration)
	if !ok {
		rt.Fatalf("the last object is a %T", objects[len(objects)-1])
	}
	pod, err := render.Pod(s, set, plan.Replicas-1)
	if err != nil {
		rt.Fatal(err)
	}
	refuse(plane.Client.Create(t.Context(), pod, client.DryRunAll), "Pod")
	if all {
		for _, object := range []client.Object{render.AppSecret(s, "x"), render.SuperuserSecret(s, "x"), render.Lease(s)} {
			refuse(plane.Client.Create(t.Context(), object, client.DryRunAll), object.GetName())
		}
	}
	return sent
}
