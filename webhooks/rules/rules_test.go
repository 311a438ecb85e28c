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
