package render

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/test/golden"
)

var (
	now       = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	renderers = Config{OperatorImage: "registry.example.com/pg-operator:v1", PostgresUID: 999}
	deciders  = decide.Config{
		Images: map[string]string{
			"16": "docker.io/library/postgres:16",
			"17": "docker.io/library/postgres:17",
		},
		LeaseDuration: 10 * time.Second,
	}
)

// sample is a snapshot of a manifest of config/samples that nothing was made for yet.
func sample(t *testing.T, name string) *snapshot.Cluster {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", name))
	if err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.PostgresCluster{}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	object.UID, object.Generation = "7a1d63a4-0f0c-4b5e-9d1b-0c1f5f1f0001", 3
	return &snapshot.Cluster{
		Object: object, CertManager: true, StorageClasses: []string{"standard"}, DefaultStorageClass: "standard",
	}
}

func yamlOf(t *testing.T, s *snapshot.Cluster) []byte {
	t.Helper()
	objects, err := Objects(s, decide.Next(s, deciders, now), renderers)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("---\n")
		all.Write(text)
	}
	return all.Bytes()
}

func TestGolden(t *testing.T) {
	tests := map[string]struct {
		sample string
		change func(*snapshot.Cluster)
	}{
		"seed": {sample: "orders-db.yaml"},
		"full": {sample: "full.yaml"},
		// The volumes go with the cluster: they get an owner.
		"delete": {sample: "orders-db.yaml", change: func(s *snapshot.Cluster) {
			s.Object.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete
		}},
		// A cluster of this name was here before: its volume says what data it holds.
		"adopted": {sample: "orders-db.yaml", change: func(s *snapshot.Cluster) {
			one := int32(1)
			s.Object.Spec.Replicas = &one
			s.Instances = []snapshot.Instance{{Name: "orders-db-0", Claim: &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{
					Name: "data-orders-db-0", Namespace: "shop",
					Annotations: map[string]string{
						naming.AnnotationSystemID: "7448392948392948392", naming.AnnotationDataVersion: "16",
					},
				},
			}}}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := sample(t, tc.sample)
			if tc.change != nil {
				tc.change(s)
			}
			golden.Equal(t, name+".yaml", yamlOf(t, s))
		})
	}
}

// TestStable proves that equal input renders to equal bytes: an apply that differs is a write, and writes wake us.
func TestStable(t *testing.T) {
	first := yamlOf(t, sample(t, "full.yaml"))
	for range 20 {
		if again := yamlOf(t, sample(t, "full.yaml")); !bytes.Equal(first, again) {
			t.Fatal("the same snapshot renders differently")
		}
	}
}

// TestOperatorUpgrade proves that another image of the operator alone makes no pod outdated.
func TestOperatorUpgrade(t *testing.T) {
	s := sample(t, "orders-db.yaml")
	plan := decide.Next(s, deciders, now)
	hash := func(config Config) string {
		template, err := podTemplate(s, plan, config)
		if err != nil {
			t.Fatal(err)
		}
		return template.Annotations[naming.AnnotationTemplateHash]
	}
	newer, other := renderers, renderers
	newer.OperatorImage, other.PostgresUID = "registry.example.com/pg-operator:v2", 1000
	if hash(newer) != hash(renderers) {
		t.Error("a new operator image changes the hash of the pod template: every database would restart")
	}
	if hash(other) == hash(renderers) {
		t.Error("a new user id does not change the hash of the pod template: no pod would follow it")
	}
}

// TestAvailabilityIsNotOfPods: what commits wait for and when replicas take over is told to running agents; no pod is made
// anew for it.
func TestAvailabilityIsNotOfPods(t *testing.T) {
	with, without := sample(t, "full.yaml"), sample(t, "full.yaml")
	without.Object.Spec.Synchronous, without.Object.Spec.Failover = nil, nil
	if bytes.Equal(yamlOf(t, with), yamlOf(t, without)) {
		t.Fatal("nothing tells the agents")
	}
	templates, settings := map[string]bool{}, map[string]bool{}
	for _, s := range []*snapshot.Cluster{with, without} {
		plan := decide.Next(s, deciders, now)
		hash, err := TemplateHash(s, plan, renderers)
		if err != nil {
			t.Fatal(err)
		}
		templates[hash], settings[plan.SettingsHash] = true, true
	}
	if len(templates) != 1 || len(settings) != 2 {
		t.Errorf("%d templates, want 1; %d hashes, by which agents say what they have heard, want 2", len(templates), len(settings))
	}
}
