package rules

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	parameters: {fsync: "off", port: "1", work_men: 8MB, max_connections: "20", superuser_reserved_connections: "20"}, tolerations: [{operator: Is}], affinity: {nodeAffinity: {
	preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}},
	topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}],
	synchronous: {mode: quorum, number: 9, durability: strict}, failover: {leaseDuration: 5s, suspicion: 9s, maxLag: 1Ti}}`

// TestOnlyChangesAreJudged changes objects that were invalid before.
func TestOnlyChangesAreJudged(t *testing.T) {
	if errs := ValidateSpec(&cluster(t, "", legacy, "{}").Spec); len(errs) < 18 {
		t.Fatalf("the legacy object breaks only %d rules: %v", len(errs), errs)
	}
	tests := map[string]struct {
		change func(*v1alpha1.PostgresCluster)
		want   []string
	}{
		"nothing":       {change: func(*v1alpha1.PostgresCluster) {}},
		"metadata":      {change: func(c *v1alpha1.PostgresCluster) { c.Finalizers = []string{"example.com/x"} }},
		"another field": {change: func(c *v1alpha1.PostgresCluster) { c.Spec.Paused = true }},
		"one mended":    {change: func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = "Retain" }},
		"the number of replicas mended, which another field needs": {
			change: func(c *v1alpha1.PostgresCluster) { *c.Spec.Replicas = 5 }, want: []string{"spec.synchronous.number"},
		},
		"failover mended in part": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Failover.MaxLag = "1Gi" }, want: []string{"spec.failover.suspicion"},
		},
		"one made worse": {
			change: func(c *v1alpha1.PostgresCluster) { *c.Spec.Replicas = 10 }, want: []string{"spec.replicas"},
		},
		"same size, other spelling": {change: func(c *v1alpha1.PostgresCluster) { c.Spec.Storage = "1024Gi" }},
		"a setting mended":          {change: func(c *v1alpha1.PostgresCluster) { delete(c.Spec.Parameters, "fsync") }},
		"a setting made worse": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["port"] = "2" }, want: []string{"spec.parameters[port]"},
		},
		"an unknown setting changed": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["work_men"] = "9MB" }, want: []string{"spec.parameters[work_men]"},
		},
		"a conflict of settings made worse": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["max_connections"] = "15" },
			want:   []string{"spec.parameters[superuser_reserved_connections]"},
		},
		"a conflict of settings mended": {
			change: func(c *v1alpha1.PostgresCluster) { delete(c.Spec.Parameters, "max_connections") },
		},
		"another version, which judges settings anew": {
			change: func(c *v1alpha1.PostgresCluster) { c.Spec.Version, c.Spec.UpgradePolicy = "16", "AllowMajor" },
			want: []string{
				"spec.parameters[fsync]", "spec.parameters[port]", "spec.parameters[superuser_reserved_connections]",
				"spec.parameters[work_men]",
			},
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

// TestStoredSettings: what an older operator admitted, and PostgreSQL copes with, stops nobody from acting on an object.
func TestStoredSettings(t *testing.T) {
	tests := map[string]struct {
		parameters map[string]string
		want       []string
	}{
		"unknown":                {parameters: map[string]string{"work_men": "8MB"}},
		"of another version":     {parameters: map[string]string{"io_method": "sync"}},
		"no such value":          {parameters: map[string]string{"work_mem": "lots", "synchronous_commit": "maybe"}},
		"values that conflict":   {parameters: map[string]string{"max_connections": "20", "superuser_reserved_connections": "20"}},
		"learned to be unwise":   {parameters: map[string]string{"session_preload_libraries": "auto_explain"}},
		"not ours to pass on":    {parameters: map[string]string{"fsync": "off"}, want: []string{"spec.parameters[fsync]"}},
		"a program":              {parameters: map[string]string{"Archive_command": "true"}, want: []string{"spec.parameters[Archive_command]"}},
		"not a name":             {parameters: map[string]string{"a b": "c"}, want: []string{"spec.parameters[a b]"}},
		"twice":                  {parameters: map[string]string{"Work_mem": "8MB", "work_mem": "8MB"}, want: []string{"spec.parameters[work_mem]"}},
		"less than we need":      {parameters: map[string]string{"max_wal_senders": "0"}, want: []string{"spec.parameters[max_wal_senders]"}},
		"nobody could replicate": {parameters: map[string]string{"wal_level": "minimal"}, want: []string{"spec.parameters[wal_level]"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster(t, "", `{replicas: 3, version: "16"}`, "{}").Spec
			s.Parameters = test.parameters
			if len(ValidateSpec(&s)) == 0 {
				t.Error("a new cluster may have it")
			}
			var refused []string
			for _, err := range ValidateStored(&s) {
				refused = append(refused, err.Field)
			}
			if !slices.Equal(refused, test.want) {
				t.Errorf("stored, it is refused for %q, want %q", refused, test.want)
			}
		})
	}
}

func TestWarnRestarts(t *testing.T) {
	tests := map[string]struct{ old, changed, want string }{
		"set":                 {old: `{}`, changed: `{parameters: {max_connections: "200"}}`, want: "max_connections"},
		"changed":             {old: `{parameters: {max_connections: "100"}}`, changed: `{parameters: {max_connections: "200"}}`, want: "max_connections"},
		"removed":             {old: `{parameters: {Max_connections: "100"}}`, changed: `{parameters: {}}`, want: "max_connections"},
		"two":                 {old: `{}`, changed: `{parameters: {wal_level: logical, shared_buffers: 1GB}}`, want: "shared_buffers wal_level"},
		"the same":            {old: `{parameters: {max_connections: "200"}}`, changed: `{paused: true, parameters: {Max_Connections: "200"}}`},
		"taken at once":       {old: `{}`, changed: `{parameters: {work_mem: 8MB, pg_stat_statements.max: "1"}}`},
		"with a version":      {old: `{version: "16"}`, changed: `{version: "17", upgradePolicy: AllowMajor, parameters: {max_connections: "200"}}`},
		"a restart up to 17":  {old: `{version: "17"}`, changed: `{version: "17", parameters: {autovacuum_max_workers: "5"}}`, want: "autovacuum_max_workers"},
		"no restart since 18": {old: `{version: "18"}`, changed: `{version: "18", parameters: {autovacuum_max_workers: "5"}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range Warnings(cluster(t, "", test.old, "{}"), cluster(t, "", test.changed, "{}")) {
				if rest, found := strings.CutPrefix(w, "spec.parameters["); found {
					name, text, _ := strings.Cut(rest, "]")
					if got = append(got, name); !strings.Contains(text, "restart") {
						t.Errorf("warning %q", w)
					}
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("warnings about %q, want %q", got, test.want)
			}
		})
	}
}

// TestWarningsAreShort: the API server cuts long ones when there are many.
func TestWarningsAreShort(t *testing.T) {
	seen := 0
	for name, test := range admissioncases.All {
		c := cluster(t, test.ObjectName, test.New, test.Status)
		var old *v1alpha1.PostgresCluster
		if test.Old != "" {
			old = cluster(t, test.ObjectName, test.Old, test.Status)
		}
		for _, warning := range Warnings(old, c) {
			seen++
			if len(warning) > 120 {
				t.Errorf("%s: %d characters: %s", name, len(warning), warning)
			}
		}
	}
	if seen < 10 {
		t.Errorf("the table gives only %d warnings", seen)
	}
}

// TestSettingsFitIntoOneConfigMap: each may be long, but not all of them.
func TestSettingsFitIntoOneConfigMap(t *testing.T) {
	tests := map[string]struct {
		settings int
		text     string
		fits     bool
	}{
		"many":                   {settings: 200, text: strings.Repeat("a", 4096), fits: true},
		"too many":               {settings: 256, text: strings.Repeat("a", 4096)},
		"many that JSON escapes": {settings: 100, text: strings.Repeat("<", 4096)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := v1alpha1.PostgresClusterSpec{Parameters: map[string]string{}}
			for i := range test.settings {
				s.Parameters[fmt.Sprintf("x.p%d", i)] = test.text
			}
			errs := ValidateSpec(&s)
			if fits := len(errs) == 0; fits != test.fits {
				t.Errorf("%d errors, fits %v, want %v", len(errs), fits, test.fits)
			}
			for _, err := range errs {
				if err.Field != "spec.parameters" || len(err.Error()) > 300 {
					t.Errorf("says %s", err)
				}
			}
		})
	}
}

// TestSettingsOfTheCRD: what the CRD says of settings is what the rules say, word for word.
func TestSettingsOfTheCRD(t *testing.T) {
	text, err := os.ReadFile("../../config/crd/bases/db.example.com_postgresclusters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, rule := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].XValidations {
		name, is := strings.CutPrefix(rule.FieldPath, ".parameters['")
		if name = strings.TrimSuffix(name, "']"); !is {
			continue
		}
		found++
		if strings.Count(rule.Rule, "'"+name+"'") != 4 {
			t.Errorf("the rule of %s names something else: %s", name, rule.Rule)
		}
		for _, value := range []string{"on", "off", "x"} {
			errs := ValidateCreate(cluster(t, "", `{version: "17", parameters: {`+name+`: "`+value+`"}}`, "{}"))
			says := func(e *field.Error) bool {
				return e.Field == "spec.parameters["+name+"]" && e.Detail == rule.Message
			}
			if !slices.ContainsFunc(errs, says) {
				t.Errorf("%s = %s: the CRD says %q, the rules %v", name, value, rule.Message, errs)
			}
		}
	}
	if found < 10 {
		t.Errorf("the CRD has only %d rules for settings", found)
	}
}
