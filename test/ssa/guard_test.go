package ssa_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/admissioncases"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/webhooks/rules"
)

// openDoor lets every object in: no schema, no CEL, no webhook, and no scale subresource, which would look at the
// number of replicas too.
func openDoor(t *testing.T) {
	t.Helper()
	crd := controlplane.WithoutRules(plane.CRD(t))
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Subresources.Scale = nil
	}
	plane.InstallCRD(t, crd)
}

// smuggle replaces the spec of a cluster, whatever it is, and returns the condition Ready of that generation.
func smuggle(t *testing.T, c *v1alpha1.PostgresCluster, spec string) metav1.Condition {
	t.Helper()
	wanted := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &wanted); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.PostgresClusterKind)
	controlplane.Eventually(t, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(c), u); err != nil {
			return err
		}
		u.Object["spec"] = wanted
		return plane.Client.Update(ctx, u)
	})
	return readyOf(t, c, u.GetGeneration())
}

// readyOf waits for the condition Ready of a generation; often, because many specs are tried.
func readyOf(t *testing.T, c *v1alpha1.PostgresCluster, generation int64) metav1.Condition {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range live.Status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && condition.ObservedGeneration == generation {
				return condition
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no condition Ready of generation %d: %s", generation, describe(live.Status.Conditions))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// pathAndRule is what may be said of a refused field: where it is and which kind of rule it breaks, no value.
var pathAndRule = regexp.MustCompile(`^spec(\.[a-zA-Z0-9]+|\[[^]]*\])* \((invalid value|unsupported value|forbidden|required value|duplicate value|too long|too many)\)$`)

// wantGuarded checks that a condition refuses a spec and names exactly these fields.
func wantGuarded(t *testing.T, condition metav1.Condition, fields []string) {
	t.Helper()
	if condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonInvalidSpec {
		t.Errorf("Ready=%s (%s: %s), want InvalidSpec", condition.Status, condition.Reason, condition.Message)
		return
	}
	_, list, _ := strings.Cut(condition.Message, ": ")
	var named []string
	for item := range strings.SplitSeq(list, ", ") {
		if !pathAndRule.MatchString(item) {
			t.Errorf("%q is more than a path and a rule", item)
		}
		path, _, _ := strings.Cut(item, " (")
		named = append(named, path)
	}
	slices.Sort(named)
	if named = slices.Compact(named); !slices.Equal(named, fields) {
		t.Errorf("named %q, want %q", named, fields)
	}
}

// TestGuard smuggles specs into running clusters that admission would have refused. Two clusters serve for all of them,
// one with a StorageClass that it names and one without.
func TestGuard(t *testing.T) {
	plain, _, _ := converged(t, 1)
	classy := cluster(plane.Namespace(t), "orders", 1)
	class := "rigid"
	classy.Spec.StorageClassName = &class
	convergedAs(t, classy)
	openDoor(t)
	for _, c := range []*v1alpha1.PostgresCluster{plain, classy} {
		quiet(t, c.Namespace)
	}
	before := versions(t, plain.Namespace)
	t.Run("table", func(t *testing.T) { guardTable(t, plain) })
	t.Run("transitions", func(t *testing.T) {
		const storage, class = "spec.storage", "spec.storageClassName"
		guardChanges(t, plain, []smuggled{
			{`{replicas: 1, version: "17", storage: 19Gi}`, []string{storage}},
			{`{replicas: 3, version: "17", storage: 1Gi, parameters: {work_mem: 8MB}}`, []string{storage}},
			{`{replicas: 1, version: "17", storage: 20Gi, storageClassName: standard}`, []string{class}},
			{`{replicas: 1, version: "17", storage: 20Gi, storageClassName: ""}`, []string{class}},
			{`{replicas: 1, version: "17", storage: 9Gi, storageClassName: standard}`, []string{storage, class}},
			{`{replicas: 9, version: "17", storage: 9Gi}`, []string{"spec.replicas", storage}},
		})
		guardChanges(t, classy, []smuggled{
			{`{replicas: 1, version: "17", storage: 20Gi, storageClassName: standard}`, []string{class}},
			{`{replicas: 1, version: "17", storage: 20Gi, storageClassName: ""}`, []string{class}},
			{`{replicas: 1, version: "17", storage: 20Gi}`, []string{class}},
		})
	})
	wantUnchanged(t, plain.Namespace, before)
	t.Run("version", func(t *testing.T) { guardVersion(t, plain) })
	// Leaving out means no opinion.
	smuggle(t, plain, `{replicas: 1}`)
	smuggle(t, classy, `{replicas: 1, storageClassName: rigid}`)
	awaitReady(t, plain)
	awaitReady(t, classy)
}

// guardTable tries every spec that admission refuses by itself, one after the other.
func guardTable(t *testing.T, c *v1alpha1.PostgresCluster) {
	tried := 0
	for _, name := range slices.Sorted(maps.Keys(admissioncases.All)) {
		test := admissioncases.All[name]
		if test.Old != "" || test.ObjectName != "" || len(test.Refused) == 0 {
			continue
		}
		fields := guarded(t, test)
		if len(fields) == 0 {
			continue // The database copes with it, so the operator goes on.
		}
		tried++
		t.Run(name, func(t *testing.T) { wantGuarded(t, smuggle(t, c, test.New), fields) })
	}
	if tried < 30 {
		t.Errorf("the table has only %d specs that are refused", tried)
	}
}

// guarded are those of a case's fields that stop the operator: of settings, only what PostgreSQL would not ignore.
func guarded(t *testing.T, test admissioncases.Case) []string {
	t.Helper()
	spec := v1alpha1.PostgresClusterSpec{}
	if err := yaml.Unmarshal([]byte(test.New), &spec); err != nil {
		t.Fatal(err)
	}
	stops := map[string]bool{}
	for _, err := range rules.ValidateStored(&spec) {
		stops[err.Field] = true
	}
	return slices.DeleteFunc(slices.Clone(test.Refused), func(field string) bool {
		return strings.HasPrefix(field, "spec.parameters[") && !stops[field]
	})
}

// smuggled is a change that is wrong only because of what was before. The operator was not there to see it.
type smuggled struct {
	spec    string
	refused []string
}

func guardChanges(t *testing.T, c *v1alpha1.PostgresCluster, changes []smuggled) {
	t.Helper()
	before := versions(t, c.Namespace)
	for _, change := range changes {
		wantGuarded(t, smuggle(t, c, change.spec), change.refused)
	}
	wantUnchanged(t, c.Namespace, before)
}

// guardVersion tries other major versions: whatever the spec says, nothing happens to pods and volumes.
func guardVersion(t *testing.T, c *v1alpha1.PostgresCluster) {
	before, pods := versions(t, c.Namespace), podUIDs(t, c)
	set, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"16", "18"} {
		condition := smuggle(t, c, fmt.Sprintf(`{replicas: 1, version: "%s", storage: 20Gi}`, version))
		if condition.Reason != v1alpha1.ReasonMajorUpgradePending || condition.Status != metav1.ConditionFalse ||
			!strings.Contains(condition.Message, `Set spec.version back to "17"`) {
			t.Errorf("version %s: Ready=%s (%s: %s)", version, condition.Status, condition.Reason, condition.Message)
		}
	}
	// The StatefulSet's annotation names the generation that was looked at; its spec is what it was.
	wantUnchanged(t, c.Namespace, before, "StatefulSet")
	now, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil || now.UID != set.UID || now.Generation != set.Generation {
		t.Errorf("the StatefulSet's spec was changed: %v", err)
	}
	if live := podUIDs(t, c); !maps.Equal(live, pods) {
		t.Errorf("pods were %v, are %v", pods, live)
	}
}
