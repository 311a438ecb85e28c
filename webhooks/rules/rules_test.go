package rules

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/admissioncases"
)

func cluster(t *testing.T, name, spec, status string) *v1alpha1.PostgresCluster {
	t.Helper()
	c := &v1alpha1.PostgresCluster{}
	c.Name = name
	if c.Name == "" {
		c.Name = "orders-db"
	}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(status), &c.Status); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTable(t *testing.T) {
	for name, test := range admissioncases.All {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, test.ObjectName, test.New, test.Status)
			if c.Spec.Replicas == nil {
				c.Default(v1alpha1.Defaults{}) // The schema's defaults.
			}
			var old *v1alpha1.PostgresCluster
			errs := ValidateCreate(c)
			if test.Old != "" {
				old = cluster(t, test.ObjectName, test.Old, test.Status)
				c = cluster(t, test.ObjectName, test.New, test.Status)
				errs = ValidateUpdate(old, c)
			}
			var refused []string
			for _, err := range errs {
				refused = append(refused, err.Field)
			}
			if got := slices.Compact(refused); !slices.Equal(got, test.Refused) {
				t.Errorf("refused %q, want %q: %v", got, test.Refused, errs.ToAggregate())
			}
			if test.Says != "" && !strings.Contains(errs.ToAggregate().Error(), test.Says) {
				t.Errorf("says %q, want %q in it", errs.ToAggregate(), test.Says)
			}
			warnings := Warnings(old, c)
			warned := slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, test.Warns) })
			if test.Warns != "" && !warned {
				t.Errorf("warnings %q, want %q among them", warnings, test.Warns)
			}
			if test.Warns == "" && test.Refused == nil && len(warnings) > 0 && old == nil {
				t.Errorf("warnings %q, want none", warnings)
			}
			for _, w := range warnings {
				if len(w) > 160 {
					t.Errorf("warning of %d bytes is long enough to be cut: %s", len(w), w)
				}
			}
		})
	}
}

// legacy breaks every rule.
const legacy = `{replicas: 9, version: "15.2", storage: 1Ti, storageClassName: Bad_Class, image: Postgres,
	deletionPolicy: Never, upgradePolicy: Never, resources: {claims: [{name: a}]}, nodeSelector: {"a b": "c"},
	parameters: {fsync: "off", port: "1"}, tolerations: [{operator: Is}], affinity: {nodeAffinity: {
	preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}},
	topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}`

// TestOnlyChangesAreJudged changes objects that were invalid before.
func TestOnlyChangesAreJudged(t *testing.T) {
	if errs := ValidateSpec(&cluster(t, "", legacy, "{}").Spec); len(errs) < 13 {
		t.Fatalf("the legacy object breaks only %d rules: %v", len(errs), errs)
	}
	tests := map[string]struct {
		change func(*v1alpha1.PostgresCluster)
		want   []string
	}{
		"nothing":       {change: func(*v1alpha1.PostgresCluster) {}},
		"metadata":      {change: func(c *v1alpha1.PostgresCluster) { c.Finalizers = []string{"example.com/x"} }},
		"another field": {change: func(c *v1alpha1.PostgresCluster) { c.Spec.Paused = true }},
		"one mended":    {change: func(c *v1alpha1.PostgresCluster) { *c.Spec.Replicas = 3 }},
		"one made worse": {
			change: func(c *v1alpha1.PostgresCluster) { *c.Spec.Replicas = 10 }, want: []string{"spec.replicas"},
		},
		"same size, other spelling": {change: func(c *v1alpha1.PostgresCluster) { c.Spec.Storage = "1024Gi" }},
		"a setting mended":          {change: func(c *v1alpha1.PostgresCluster) { delete(c.Spec.Parameters, "fsync") }},
		"a setting made worse": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["port"] = "2" }, want: []string{"spec.parameters[port]"},
		},
		"another version, which judges settings anew": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Version, c.Spec.UpgradePolicy = "16", "AllowMajor" },
			want:   []string{"spec.parameters[fsync]", "spec.parameters[port]"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := cluster(t, "", legacy, "{}")
			changed := old.DeepCopy()
			test.change(changed)
			var refused []string
			for _, err := range ValidateUpdate(old, changed) {
				refused = append(refused, err.Field)
			}
			if !slices.Equal(refused, test.want) {
				t.Errorf("refused %q, want %q", refused, test.want)
			}
		})
	}
}
