package rules

import (
	"strings"
	"testing"

	"github.com/acme/pg-operator/apis/naming"
)

func TestSwitchoverRequests(t *testing.T) {
	tests := map[string]struct {
		// old and request are the annotation before and after; a dash in old is no object.
		old, request, spec string
		refused            bool
		warns              string
	}{
		"none":                                {},
		"any":                                 {request: "any"},
		"any, once more":                      {old: "any@1", request: "any@2"},
		"an instance":                         {request: "orders-db-2"},
		"an instance, once more":              {request: "orders-db-2@2026-01-02T03:04:05Z"},
		"an instance of a new cluster":        {old: "-", request: "orders-db-0"},
		"beyond the instances":                {request: "orders-db-3", refused: true},
		"of another cluster":                  {request: "orders-0", refused: true},
		"a number":                            {request: "1", refused: true},
		"in other letters":                    {request: "Any", refused: true},
		"only a mark":                         {request: "@1", refused: true},
		"a mark, and nothing":                 {request: "any@"},
		"two marks":                           {request: "orders-db-2@a@b"},
		"a space before":                      {request: " any", refused: true},
		"a line behind":                       {request: "any\n", refused: true},
		"a number with a zero before":         {request: "orders-db-02", refused: true},
		"a number with a sign":                {request: "orders-db-+1", refused: true},
		"below the instances":                 {request: "orders-db--1", refused: true},
		"the cluster alone":                   {request: "orders-db", refused: true},
		"as long as may be":                   {request: "any@" + strings.Repeat("x", maxSwitchover-4)},
		"a byte longer":                       {request: "any@" + strings.Repeat("x", maxSwitchover-3), refused: true},
		"a story":                             {request: "any@" + strings.Repeat("x", 200), refused: true},
		"beyond the instances, of old":        {old: "orders-db-4", request: "orders-db-4"},
		"taken back":                          {old: "any"},
		"one instance":                        {request: "any", spec: `{replicas: 1}`, warns: "no other instance"},
		"paused":                              {request: "any", spec: `{replicas: 3, paused: true}`, warns: "spec.paused"},
		"nobody takes over":                   {request: "any", spec: `{replicas: 3, failover: {enabled: false}}`, warns: "spec.failover.enabled"},
		"paused, and asked for already":       {old: "any", request: "any", spec: `{replicas: 3, paused: true}`},
		"an absurd number of instances, fast": {request: "x", spec: `{replicas: 2000000000}`, refused: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.spec == "" {
				test.spec = `{replicas: 3}`
			}
			c := cluster(t, "", test.spec, "")
			old := c.DeepCopy()
			c.Annotations = map[string]string{naming.AnnotationSwitchover: test.request}
			old.Annotations = map[string]string{naming.AnnotationSwitchover: test.old}
			errs := ValidateUpdate(old, c)
			if test.old == "-" {
				old, errs = nil, ValidateCreate(c)
			}
			refused := false
			for _, err := range errs {
				refused = refused || err.Field == "metadata.annotations[db.example.com/switchover]"
			}
			if refused != test.refused {
				t.Errorf("refused %v, want %v: %v", refused, test.refused, errs)
			}
			warned := strings.Join(Warnings(old, c), "\n")
			if !strings.Contains(warned, test.warns) || strings.Contains(warned, "annotations") != (test.warns != "") {
				t.Errorf("warns %q, want %q", warned, test.warns)
			}
		})
	}
}
