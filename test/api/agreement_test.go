package api

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/webhooks/rules"
)

var (
	pairSeed  = flag.Int("pair-seed", 0, "seed of the random pairs of objects; 0 for another one each time")
	pairOnly  = flag.Int("pair", -1, "the only pair to try")
	pairCount = flag.Int("pairs", 1200, "number of random pairs of objects to try; make test-random tries more")
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
	nameValues     = []string{"a", "a-1", "1a", "a.b", strings.Repeat("a", 50), strings.Repeat("a", 51)}
	hbaValues      = [][]string{
		nil,
		{},
		{"hostssl all a all cert"},
		{"hostssl all a all cert", "host all all all md5"},
		{"hostssl all a all cert\n"},
		{" \thostssl\tall a all reject"},
		{""},
		{"hostssl"},
		{"local all all peer", "hostssl all a 10.0.0.0/8 cert", "hostnossl all a all cert\r"},
		{"hostssl all a all reject" + strings.Repeat(" ", 1000)},
		{"hostssl all a all reject" + strings.Repeat(" ", 1001)},
		slices.Repeat([]string{"hostssl all a all reject"}, 64), slices.Repeat([]string{"hostssl all a all reject"}, 65),
	}
	deletionValues   = []v1alpha1.DeletionPolicy{"Retain", "Delete", "Keep", ""}
	upgradeValues    = []v1alpha1.UpgradePolicy{"MinorOnly", "AllowMajor", "Always", ""}
	modeValues       = []v1alpha1.SynchronousMode{"quorum", "quorum", "quorum", "off", "first", ""}
	durabilityValues = []v1alpha1.Durability{"", "required", "preferred", "strict"}
	numberValues     = []*int32{nil, new(int32(1)), new(int32(2)), new(int32(4)), new(int32(0)), new(int32(5))}
	leaseValues      = []string{"", "5s", "10s", "60s", "4s", "61s", "05s", "010s", "1m", "7.5s", "10", "+10s", "10s\n", " 10s", "10S"}
	suspicionValues  = []string{"", "500ms", "1500ms", "2.5s", "5s", "10s", "30s", "30.001s", "499ms", "0.5s", "1", "1m", "-1s", "99999s", "999999999s", ".5s", "00501ms", "1e3ms", "1s500ms", "\uff12s", "2s\n", "2 s"}
	lagValues        = []string{"", "0Mi", "16Mi", "1024Gi", "1025Gi", "1048576Mi", "1048577Mi", "016Mi", "16M", "1Ti", "-1Mi", "9999999Ki", "1.5Gi", "16Mi\n", "16777216", "16mi", "16MiMiMiMiMiMiMiMi"}
	// Lengths of lists and maps: few, as many as may be, one too many.
	parameterCounts, spreadCounts, otherCounts = []int{0, 1, 1, 256, 257}, []int{0, 1, 16, 17}, []int{0, 1, 64, 65}
)

func drawSpec(t *rapid.T, label string) v1alpha1.PostgresClusterSpec {
	s := v1alpha1.PostgresClusterSpec{
		Version:            rapid.SampledFrom(versionValues).Draw(t, label+" version"),
		Storage:            rapid.SampledFrom(storageValues).Draw(t, label+" storage"),
		Image:              rapid.SampledFrom(imageValues).Draw(t, label+" image"),
		DeletionPolicy:     rapid.SampledFrom(deletionValues).Draw(t, label+" deletionPolicy"),
		UpgradePolicy:      rapid.SampledFrom(upgradeValues).Draw(t, label+" upgradePolicy"),
		DeletionProtection: rapid.Bool().Draw(t, label+" deletionProtection"),
		Paused:             rapid.Bool().Draw(t, label+" paused"),
	}
	replicas := rapid.SampledFrom(replicaValues).Draw(t, label+" replicas")
	s.Replicas = &replicas
	if rapid.Bool().Draw(t, label+" has class") {
		class := rapid.SampledFrom(classValues).Draw(t, label+" class")
		s.StorageClassName = &class
	}
	s.Resources.Requests = drawResources(t, label+" requests")
	s.Resources.Limits = drawResources(t, label+" limits")
	if rapid.IntRange(0, 2).Draw(t, label+" has availability") == 0 {
		drawAvailability(t, label, &s)
	}
	if rapid.IntRange(0, 3).Draw(t, label+" has lists") == 0 {
		drawLists(t, label, &s)
	}
	return s
}

// drawAvailability sets what belongs to commits and failovers, mostly beside replicas with which it can be right.
func drawAvailability(t *rapid.T, label string, s *v1alpha1.PostgresClusterSpec) {
	if rapid.Bool().Draw(t, label+" some replicas") {
		s.Replicas = new(rapid.Int32Range(1, 5).Draw(t, label+" replicas again"))
	}
	if rapid.Bool().Draw(t, label+" synchronous") {
		s.Synchronous = &v1alpha1.SynchronousReplication{
			Mode:       rapid.SampledFrom(modeValues).Draw(t, label+" mode"),
			Number:     rapid.SampledFrom(numberValues).Draw(t, label+" number"),
			Durability: rapid.SampledFrom(durabilityValues).Draw(t, label+" durability"),
		}
	}
	if rapid.Bool().Draw(t, label+" failover") {
		s.Failover = &v1alpha1.Failover{
			Enabled:       rapid.SampledFrom([]*bool{nil, new(true), new(false)}).Draw(t, label+" enabled"),
			LeaseDuration: rapid.SampledFrom(leaseValues).Draw(t, label+" lease"),
			Suspicion:     rapid.SampledFrom(suspicionValues).Draw(t, label+" suspicion"),
			MaxLag:        rapid.SampledFrom(lagValues).Draw(t, label+" lag"),
		}
	}
}

// drawLists fills one of the lists and maps, of which the schema bounds the length.
func drawLists(t *rapid.T, label string, s *v1alpha1.PostgresClusterSpec) {
	count := func(counts []int) int { return rapid.SampledFrom(counts).Draw(t, label+" length") }
	switch rapid.SampledFrom([]string{"parameters", "selector", "tolerations", "spread", "hba"}).Draw(t, label+" list") {
	case "parameters":
		s.Parameters = map[string]string{}
		for i := range count(parameterCounts) {
			s.Parameters[fmt.Sprintf("a.p%d", i)] = rapid.SampledFrom([]string{"x", "1", "off"}).Draw(t, label+" value")
		}
	case "selector":
		s.NodeSelector = map[string]string{}
		for i := range count(otherCounts) {
			s.NodeSelector[fmt.Sprintf("l%d", i)] = "x"
		}
	case "tolerations":
		for i := range count(otherCounts) {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: fmt.Sprint("k", i), Operator: corev1.TolerationOpExists})
		}
	case "hba":
		s.HBA = rapid.SampledFrom(hbaValues).Draw(t, label+" hba")
	default:
		for i := range count(spreadCounts) {
			s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
				MaxSkew: 1, TopologyKey: fmt.Sprint("zone", i), WhenUnsatisfiable: corev1.DoNotSchedule,
			})
		}
	}
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
		func() { s.Replicas = nil },
		func() { s.Image = to.Image },
		func() { s.Synchronous = to.Synchronous },
		func() { s.Failover = to.Failover },
		func() { s.Failover = mixed(s.Failover, to.Failover) },
		func() { s.Resources = to.Resources },
		func() { s.DeletionPolicy, s.UpgradePolicy = to.DeletionPolicy, to.UpgradePolicy },
		func() { s.DeletionProtection = !s.DeletionProtection },
		func() { s.Paused = !s.Paused },
		func() {
			s.Parameters, s.NodeSelector, s.Tolerations = to.Parameters, to.NodeSelector, to.Tolerations
			s.TopologySpreadConstraints, s.HBA = to.TopologySpreadConstraints, to.HBA
		},
	}
	for range rapid.IntRange(1, 2).Draw(t, "changes") {
		rapid.SampledFrom(changes).Draw(t, "change")()
	}
	return s
}

// mixed has the first settings, and the second's allowed lag.
func mixed(from, to *v1alpha1.Failover) *v1alpha1.Failover {
	if from == nil || to == nil {
		return to
	}
	both := *from
	both.MaxLag = to.MaxLag
	return &both
}

// pair is an object before, by its number, and after a request; a new object has nothing before.
type pair struct {
	kind string // create, update, metadata, scale
	old  int
	new  v1alpha1.PostgresCluster
}

const storedObjects = 80

func drawPair(olds []*v1alpha1.PostgresCluster) *rapid.Generator[pair] {
	return rapid.Custom(func(rt *rapid.T) pair {
		p := pair{kind: rapid.SampledFrom([]string{
			"create", "update", "update", "update", "update", "update", "update", "metadata", "scale",
		}).Draw(rt, "kind")}
		if p.kind == "create" {
			p.new.Spec = drawSpec(rt, "new")
			p.new.Name = rapid.SampledFrom(nameValues).Draw(rt, "name")
			return p
		}
		p.old = rapid.IntRange(0, len(olds)-1).Draw(rt, "old")
		p.new = *olds[p.old].DeepCopy()
		switch p.kind {
		case "scale":
			replicas := rapid.SampledFrom(replicaValues).Draw(rt, "replicas")
			p.new.Spec.Replicas = &replicas
			return p
		case "update":
			p.new.Spec = mutate(rt, p.new.Spec, drawSpec(rt, "new"))
		}
		if p.kind == "metadata" || rapid.IntRange(0, 3).Draw(rt, "labelled") == 0 {
			p.new.Labels, p.new.Finalizers = map[string]string{"team": "a"}, []string{"example.com/x"}
		}
		return p
	})
}

func drawOld() *rapid.Generator[v1alpha1.PostgresCluster] {
	return rapid.Custom(func(rt *rapid.T) v1alpha1.PostgresCluster {
		c := v1alpha1.PostgresCluster{Spec: drawSpec(rt, "old")}
		*c.Spec.Replicas = max(*c.Spec.Replicas, 0) // The scale subresource never lets less in.
		if c.Spec.DeletionPolicy == "" {
			c.Spec.DeletionPolicy = v1alpha1.DeletionPolicyRetain // The schema's default.
		}
		if c.Spec.UpgradePolicy == "" {
			c.Spec.UpgradePolicy = v1alpha1.UpgradePolicyMinorOnly
		}
		c.Status.Version = rapid.SampledFrom([]string{"", "15", "16", "17"}).Draw(rt, "data")
		c.Status.ProvisionedStorage = rapid.SampledFrom(statusStorage).Draw(rt, "provisioned")
		return c
	})
}

// storeOlds stores objects under a definition without rules; then the real one is back. Some have names of old, too.
func storeOlds(t *testing.T, namespace string, seed int) (olds []*v1alpha1.PostgresCluster, stored []*unstructured.Unstructured) {
	t.Helper()
	specs := drawOld()
	t.Run("store", func(t *testing.T) {
		plane.InstallCRD(t, controlplane.WithoutRules(plane.CRD(t)))
		for i := range storedObjects {
			c := specs.Example(seed + i)
			c.Namespace, c.Name = namespace, fmt.Sprintf("old-%d", i)
			if i%8 == 0 {
				c.Name = fmt.Sprintf("%d.%s", i, strings.Repeat("a", 60))
			}
			u := toUnstructured(&c)
			status := u.Object["status"]
			if err := plane.Client.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			u.Object["status"] = status
			if err := plane.Client.Status().Update(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			olds, stored = append(olds, &c), append(stored, u)
		}
	})
	return olds, stored
}

// TestRulesAgreeWithSchema draws thousands of objects and changes, and asks the pure rules and the API server without
// webhooks, with dry runs. Changes start from objects that today's rules refuse, too.
func TestRulesAgreeWithSchema(t *testing.T) {
	seed := *pairSeed
	if seed == 0 {
		seed = 1 + rand.IntN(1<<30)
	}
	t.Logf("-pair-seed=%d", seed)
	namespace := plane.Namespace(t)
	olds, stored := storeOlds(t, namespace, seed)
	if t.Failed() {
		return
	}
	pairs := drawPair(olds)
	var next, accepted, refused, failed atomic.Int64
	next.Store(int64(max(0, *pairOnly)))
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= *pairCount || *pairOnly >= 0 && number > *pairOnly || failed.Load() > 5 {
					return
				}
				p := pairs.Example(seed + storedObjects + number)
				errs, err := judgePair(t, &p, olds, stored, namespace)
				if err == nil {
					accepted.Add(1)
				} else {
					refused.Add(1)
				}
				if disagreement := compare(errs, err); disagreement != nil {
					failed.Add(1)
					t.Errorf("%s of pair %d: %v\nto try it again: go test ./test/api -run TestRulesAgreeWithSchema -pair-seed=%d -pair=%d",
						p.kind, number, disagreement, seed, number)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d accepted, %d refused", accepted.Load(), refused.Load())
	if *pairOnly < 0 && failed.Load() == 0 && min(accepted.Load(), refused.Load()) < int64(*pairCount)/10 {
		t.Errorf("%d accepted, %d refused: too few of one kind to tell", accepted.Load(), refused.Load())
	}
}

// judgePair asks both: the rules, and the API server with the request that the pair is of.
func judgePair(
	t *testing.T, p *pair, olds []*v1alpha1.PostgresCluster, stored []*unstructured.Unstructured, namespace string,
) (field.ErrorList, error) {
	p.new.Namespace = namespace
	if p.kind == "create" {
		return rules.ValidateCreate(&p.new), plane.Client.Create(t.Context(), toUnstructured(&p.new), client.DryRunAll)
	}
	errs := rules.ValidateUpdate(olds[p.old], &p.new)
	current := stored[p.old].DeepCopy()
	if p.kind == "scale" {
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.new.Name}}
		scale.Spec.Replicas = *p.new.Spec.Replicas
		return errs, plane.Client.SubResource("scale").Update(t.Context(), current, &client.SubResourceUpdateOptions{
			UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, SubResourceBody: scale,
		})
	}
	current.Object["spec"] = toUnstructured(&p.new).Object["spec"]
	current.SetLabels(p.new.Labels)
	current.SetFinalizers(p.new.Finalizers)
	return errs, plane.Client.Update(t.Context(), current, client.DryRunAll)
}

// compare wants the same fields refused. Where the schema stops at a value that is not in a list it leaves the rest
// unjudged, so then only its own findings must be ours too.
func compare(errs field.ErrorList, err error) error {
	var ours []string
	for _, e := range errs {
		ours = append(ours, e.Field)
	}
	slices.Sort(ours)
	ours = slices.Compact(ours)
	theirs, unexpected := fieldsOf(err)
	if unexpected != nil {
		return unexpected
	}
	incomplete := err != nil && strings.Contains(err.Error(), "some validation rules were not checked")
	if incomplete && len(theirs) > 0 {
		ours = slices.DeleteFunc(ours, func(field string) bool {
			return !slices.ContainsFunc(theirs, func(f string) bool { return strings.HasPrefix(field, f) })
		})
	}
	if !sameFields(theirs, ours, layers{schema: true}) {
		return fmt.Errorf("the API server refuses %q, the rules %q:\n%w", theirs, ours, errors.Join(err, errs.ToAggregate()))
	}
	return nil
}

func toUnstructured(c *v1alpha1.PostgresCluster) *unstructured.Unstructured {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // Not by the test's goroutine.
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		panic(err)
	}
	u.SetGroupVersionKind(v1alpha1.PostgresClusterKind)
	return u
}
