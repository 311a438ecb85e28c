package election

import (
	"testing"

	"github.com/acme/pg-operator/instance/lease"
)

func TestSyncWhenTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		rules              Rules
		holder, releasedBy string
		record, want       string
	}{
		"asynchronous":             {holder: "a_1"},
		"given up":                 {holder: "a_1", record: "required ANY 1 (b,c)"},
		"preferred":                {rules: Rules{Number: 1}, holder: "a_1", record: "preferred ANY 1 (b,c)"},
		"none before":              {rules: Rules{Number: 1, Required: true}, holder: "a_1", want: "required ANY 1 (a,c,d)"},
		"the former primary":       {rules: Rules{Number: 1, Required: true}, holder: "a_1", record: "required ANY 1 (b,c)", want: "required ANY 1 (a,c)"},
		"it released":              {rules: Rules{Number: 1, Required: true}, releasedBy: "a_1", record: "required ANY 1 (b)", want: "required ANY 1 (a)"},
		"cleared":                  {rules: Rules{Number: 1, Required: true}, record: "required ANY 1 (b,c)", want: "required ANY 1 (a,c,d)"},
		"joint":                    {rules: Rules{Number: 1, Required: true}, holder: "a_1", record: "required ANY 1 (b,c); ANY 1 (d)", want: "required ANY 1 (a,c,d)"},
		"more wanted than before":  {rules: Rules{Number: 2, Required: true}, holder: "a_1", record: "required ANY 1 (b,c)", want: "required ANY 1 (a,c)"},
		"fewer wanted than before": {rules: Rules{Number: 1, Required: true}, holder: "a_1", record: "required ANY 2 (b,c)", want: "required ANY 1 (a,c)"},
	} {
		record, err := lease.ParseSync(tc.record)
		if err != nil {
			t.Fatal(err)
		}
		l := lease.Lease{Holder: tc.holder, ReleasedBy: tc.releasedBy, Members: []string{"a", "b", "c", "d"}, Sync: record}
		if got := tc.rules.SyncWhenTaken("b", l).String(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
