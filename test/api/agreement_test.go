package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/webhooks/rules"
)

// Values that are right, and values that are near them.
var (
	replicaValues  = []int32{-1, 0, 1, 2, 3, 5, 6, 100}
	versionValues  = []string{"", "15", "16", "17", "18", "14", "19", "15.2", "016"}
	storageValues  = []string{"", "1Gi", "9Gi", "10Gi", "20Gi", "100Gi", "65536Gi", "65537Gi", "99999Gi", "100000Gi", "0Gi", "020Gi", "1Ti", "20G", "20gi", " 20Gi"}
	statusStorage  = []string{"", "9Gi", "10Gi", "20Gi", "1Ti", "21474836480", "nonsense"}
	classValues    = []string{"", "fast", "slow", "a.b-c", "A", "-a", "a..b", "a b"}
	imageValues    = []string{"", "postgres", "postgres:16", "r.example.com:5000/a/b:1", "Postgres", "a//b", "a:", "a@sha256:12", ":x", "a/b@sha256:" + strings.Repeat("0a", 32)}
	quantityValues = []string{"0", "-1", "1", "500m", "64Mi", "63Mi", "1Gi", "2Gi"}
	nameValues     = []string{"a", "a-1", "1a", "a-", "a.b", "a_b", strings.Repeat("a", 50), strings.Repeat("a", 51), "A"}
	hbaValues      = [][]string{
		nil, {}, {"hostssl all a all cert"}, {"hostssl all a all cert", "host all all all md5"}, {"hostssl all a all cert\n"},
		{" \thostssl\tall a all reject"}, {""}, {"hostssl"}, {"local all all peer", "hostssl all a 10.0.0.0/8 cert", "hostnossl all a all cert\r"},
		{"hostssl all a all reject" + strings.Repeat(" ", 1000)}, {"hostssl all a all reject" + strings.Repeat(" ", 1001)},
		slices.Repeat([]string{"hostssl all a all reject"}, 64), slices.Repeat([]string{"hostssl all a all reject"}, 65),
	}
	deletionValues = []v1alpha1.DeletionPolicy{"Retain", "Delete", "Keep"}
	upgradeValues  = []v1alpha1.UpgradePolicy{"MinorOnly", "AllowMajor", "Always"}
)

func drawSpec(t *rapid.T, label string) v1alpha1.PostgresClusterSpec {
	s := v1alpha1.PostgresClusterSpec{
		Version:        rapid.SampledFrom(versionValues).Draw(t, label+" version"),
		Storage:        rapid.SampledFrom(storageValues).Draw(t, label+" storage"),
		Image:          rapid.SampledFrom(imageValues).Draw(t, label+" image"),
		DeletionPolicy: rapid.SampledFrom(deletionValues).Draw(t, label+" deletionPolicy"),
		UpgradePolicy:  rapid.SampledFrom(upgradeValues).Draw(t, label+" upgradePolicy"),
		Paused:         rapid.Bool().Draw(t, label+" paused"),
		HBA:            rapid.SampledFrom(hbaValues).Draw(t, label+" hba"),
	}
	replicas := rapid.SampledFrom(replicaValues).Draw(t, label+" replicas")
	s.Replicas = &replicas
	if rapid.Bool().Draw(t, label+" has class") {
		class := rapid.SampledFrom(classValues).Draw(t, label+" class")
		s.StorageClassName = &class
	}
	s.Resources.Requests = drawResources(t, label+" requests")
	s.Resources.Limits = drawResources(t, label+" limits")
	return s
}

func drawResources(t *rapid.T, label string) corev1.ResourceList {
	var list corev1.ResourceList
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if rapid.IntRange(0, 3).Draw(t, label+" has "+string(name)) > 0 {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = resource.MustParse(rapid.SampledFrom(quantityValues).Draw(t, label+" "+string(name)))
	}
	return list
}

// mutate changes one or two fields of a spec to what another spec has, because changes of everything at once are
// always refused.
func mutate(t *rapid.T, from, to v1alpha1.PostgresClusterSpec) v1alpha1.PostgresClusterSpec {
	s := *from.DeepCopy()
	changes := []func(){
		func() { s.Version = to.Version },
		func() { s.Version, s.UpgradePolicy = to.Version, v1alpha1.UpgradePolicyAllowMajor },
		func() { s.Storage = to.Storage },
		func() { s.StorageClassName = to.StorageClassName },
		func() { s.Replicas = to.Replicas },
		func() { s.Image = to.Image },
		func() { s.Resources = to.Resources },
		func() { s.DeletionPolicy = to.DeletionPolicy },
		func() { s.Paused = !s.Paused },
		func() { s.HBA = to.HBA },
	}
	for range rapid.IntRange(1, 2).Draw(t, "changes") {
		rapid.SampledFrom(changes).Draw(t, "change")()
	}
	return s
}

// TestRulesAgreeWithSchema draws objects and changes, and asks the pure rules and the API server without webhooks.
// Changes start from objects that today's rules refuse, too.
func TestRulesAgreeWithSchema(t *testing.T) {
	namespace := plane.Namespace(t)
	var number atomic.Int64

	t.Run("new objects", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			cluster := &v1alpha1.PostgresCluster{Spec: drawSpec(rt, "new")}
			cluster.Namespace = namespace
			cluster.Name = rapid.SampledFrom(nameValues).Draw(rt, "name")
			if cluster.Name == "A" || cluster.Name == "a_b" || cluster.Name == "a-" {
				cluster.Name = fmt.Sprintf("a%d", number.Add(1)) // Names that no object of any kind may have.
			}
			err := plane.Client.Create(t.Context(), toUnstructured(t, cluster), client.DryRunAll)
			compare(t, rt, rules.ValidateCreate(cluster), err)
		})
	})

	t.Run("changes", func(t *testing.T) {
		// Old objects are stored under a definition without rules; then the real one is back.
		const objects = 40
		var olds []*v1alpha1.PostgresCluster
		t.Run("store", func(t *testing.T) {
			plane.InstallCRD(t, withoutRules(plane.CRD(t)))
			specs := rapid.Custom(func(rt *rapid.T) v1alpha1.PostgresCluster {
				c := v1alpha1.PostgresCluster{Spec: drawSpec(rt, "old")}
				*c.Spec.Replicas = max(*c.Spec.Replicas, 0) // The scale subresource never lets less in.
				c.Status.Version = rapid.SampledFrom([]string{"", "15", "16", "17"}).Draw(rt, "data")
				c.Status.ProvisionedStorage = rapid.SampledFrom(statusStorage).Draw(rt, "provisioned")
				return c
			})
			for i := range objects {
				c := specs.Example(i)
				c.Namespace, c.Name = namespace, fmt.Sprintf("old-%d", i)
				stored := toUnstructured(t, &c)
				status := stored.Object["status"]
				if err := plane.Client.Create(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
				stored.Object["status"] = status
				if err := plane.Client.Status().Update(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
				olds = append(olds, &c)
			}
		})
		accepted := 0
		rapid.Check(t, func(rt *rapid.T) {
			old := rapid.SampledFrom(olds).Draw(rt, "old")
			for range 10 {
				cluster := old.DeepCopy()
				cluster.Spec = mutate(rt, old.Spec, drawSpec(rt, "new"))
				current := toUnstructured(t, old)
				if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(current), current); err != nil {
					t.Fatal(err)
				}
				current.Object["spec"] = toUnstructured(t, cluster).Object["spec"]
				err := plane.Client.Update(t.Context(), current, client.DryRunAll)
				if err == nil {
					accepted++
				}
				compare(t, rt, rules.ValidateUpdate(old, cluster), err)
			}
		})
		t.Logf("%d changes were accepted by both", accepted)
	})
}

// compare wants the same fields refused. Where the schema stops at a value that is not in a list it leaves the rest
// unjudged, so then only its own findings must be ours too.
func compare(t *testing.T, rt *rapid.T, errs field.ErrorList, err error) {
	t.Helper()
	var ours []string
	for _, e := range errs {
		ours = append(ours, e.Field)
	}
	ours = slices.Compact(ours)
	theirs := refusedFields(t, err)
	incomplete := err != nil && strings.Contains(err.Error(), "some validation rules were not checked")
	if incomplete && len(theirs) > 0 {
		ours = slices.DeleteFunc(ours, func(field string) bool {
			return !slices.ContainsFunc(theirs, func(f string) bool { return strings.HasPrefix(field, f) })
		})
	}
	if !sameFields(theirs, ours, layers{schema: true}) {
		rt.Fatalf("the API server refuses %q, the rules %q:\n%v\n%v", theirs, ours, err, errs.ToAggregate())
	}
}

func toUnstructured(t *testing.T, c *v1alpha1.PostgresCluster) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(v1alpha1.PostgresClusterKind)
	return u
}
