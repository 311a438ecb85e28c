package lease_test

import (
	"strings"
	"testing"

	"github.com/acme/pg-operator/instance/lease"
)

func TestDecide(t *testing.T) {
	members := []string{"db-0", "db-1"}
	primary := lease.Data{Present: true, SystemID: "7"}
	replica := lease.Data{Present: true, SystemID: "7", Replica: true}
	torn := lease.Data{Present: true, SystemID: "7", Torn: true}
	held := func(holder string) lease.Lease { return lease.Lease{Holder: holder, Term: 3, SystemID: "7"} }
	for name, tc := range map[string]struct {
		self     string
		lease    lease.Lease
		unknown  bool
		members  []string
		systemID string
		data     lease.Data
		running  bool
		leading  bool
		heldTerm int32
		replaced bool
		ledTerm  int32
		want     lease.Verdict
		reason   string
	}{
		"new cluster, first":              {self: "db-0", want: lease.Take, reason: "makes"},
		"new cluster, second":             {self: "db-1", want: lease.Wait, reason: "db-0"},
		"new cluster, stranger":           {self: "db-9", want: lease.Wait, reason: "not a member"},
		"holds":                           {self: "db-0", lease: held("db-0_now"), data: primary, want: lease.Hold},
		"earlier incarnation":             {self: "db-0", lease: held("db-0_old"), data: primary, want: lease.Take},
		"earlier incarnation, no data":    {self: "db-0", lease: held("db-0_old"), want: lease.Take},
		"later incarnation":               {self: "db-0", lease: held("db-0_new"), heldTerm: 2, data: primary, running: true, leading: true, want: lease.Yield},
		"later incarnation, stopped":      {self: "db-0", lease: held("db-0_new"), heldTerm: 2, data: primary, want: lease.Yield},
		"replaced, had led alone":         {self: "db-0", lease: held("db-0_new"), replaced: true, data: primary, running: true, leading: true, want: lease.Yield, reason: "deleted"},
		"replaced, made anew":             {self: "db-0", replaced: true, data: primary, running: true, leading: true, want: lease.Yield},
		"emptied after a later one held":  {self: "db-0", lease: held(""), heldTerm: 2, data: primary, running: true, leading: true, want: lease.Wait, reason: "since"},
		"emptied as it held it":           {self: "db-0", lease: held(""), heldTerm: 3, data: primary, running: true, leading: true, want: lease.Take},
		"held before, another holds":      {self: "db-0", lease: held("db-1_x"), heldTerm: 2, data: primary, running: true, leading: true, want: lease.Follow},
		"another holds":                   {self: "db-1", lease: held("db-0_x"), data: replica, want: lease.Follow, reason: "db-0"},
		"another holds, primary data":     {self: "db-1", lease: held("db-0_x"), data: primary, want: lease.Follow},
		"another holds, no data":          {self: "db-1", lease: held("db-0_x"), want: lease.Follow},
		"longer name of a stranger":       {self: "db-1", lease: held("db-10_x"), data: replica, want: lease.Wait, reason: "db-10_x"},
		"longer name of another":          {self: "db-1", members: []string{"db-1", "db-10"}, lease: held("db-10_x"), data: replica, want: lease.Follow},
		"held by a stranger":              {self: "db-0", lease: held("bob"), heldTerm: 3, data: primary, running: true, leading: true, want: lease.Wait, reason: `kubectl -n ns patch lease db --type merge -p '{"spec":{"holderIdentity":""}}'`},
		"held by a stranger, named":       {self: "db-0", lease: held("bob"), heldTerm: 3, data: primary, want: lease.Wait, reason: `the Lease db is held by "bob"`},
		"removed, but holds":              {self: "db-2", lease: held("db-2_now"), heldTerm: 3, data: primary, want: lease.Hold},
		"members not known":               {self: "db-0", members: []string{}, lease: held("db-1_x"), data: replica, want: lease.Follow},
		"cleared after a stranger":        {self: "db-0", lease: held(""), heldTerm: 3, data: primary, want: lease.Take, reason: "adopts"},
		"initialised, first is empty":     {self: "db-0", systemID: "7", want: lease.Wait, reason: "clone from"},
		"Lease knows, first is empty":     {self: "db-0", lease: lease.Lease{SystemID: "7"}, want: lease.Wait, reason: "clone from"},
		"adopts":                          {self: "db-0", systemID: "7", data: primary, want: lease.Take, reason: "adopts"},
		"adopts, not known yet":           {self: "db-1", data: primary, want: lease.Take, reason: "adopts"},
		"replica's copy is not adopted":   {self: "db-0", systemID: "7", data: replica, want: lease.Wait, reason: "not promoted"},
		"a replica's copy is all":         {self: "db-0", members: []string{"db-0"}, systemID: "7", data: replica, want: lease.Wait, reason: "set spec.replicas"},
		"torn data is not adopted":        {self: "db-1", systemID: "7", data: torn, want: lease.Wait, reason: "rewound"},
		"no API, alone, torn":             {self: "db-0", unknown: true, members: []string{"db-0"}, data: torn, want: lease.Wait},
		"foreign data":                    {self: "db-0", systemID: "8", data: primary, want: lease.Refuse, reason: "nothing was changed"},
		"foreign to the Lease":            {self: "db-1", lease: held("db-0_x"), data: lease.Data{Present: true, SystemID: "9"}, want: lease.Refuse},
		"Lease and ConfigMap disagree":    {self: "db-0", lease: held("db-0_now"), systemID: "8", want: lease.Refuse, reason: "another cluster"},
		"they disagree while it runs":     {self: "db-0", lease: held("db-0_now"), systemID: "8", data: primary, running: true, leading: true, want: lease.Hold},
		"taken away from a runner":        {self: "db-0", lease: held("db-1_x"), systemID: "8", data: primary, running: true, leading: true, want: lease.Follow},
		"emptied under a primary":         {self: "db-0", lease: held(""), data: primary, running: true, leading: true, want: lease.Take},
		"made anew under a primary":       {self: "db-0", data: primary, running: true, leading: true, want: lease.Take},
		"emptied, stopped primary":        {self: "db-0", lease: held(""), data: primary, want: lease.Take, reason: "adopts"},
		"emptied, led last":               {self: "db-0", lease: held(""), data: primary, ledTerm: 3, want: lease.Take, reason: "adopts"},
		"emptied, led before another":     {self: "db-0", lease: held(""), data: primary, ledTerm: 2, want: lease.Wait, reason: "term 2"},
		"emptied, stopped replica":        {self: "db-1", lease: held(""), data: replica, want: lease.Wait, reason: "not promoted"},
		"emptied, torn":                   {self: "db-1", lease: held(""), data: torn, want: lease.Wait, reason: "rewound"},
		"emptied, nothing left":           {self: "db-0", lease: held(""), want: lease.Wait, reason: "clone from"},
		"emptied, foreign data":           {self: "db-0", lease: held(""), data: lease.Data{Present: true, SystemID: "9"}, want: lease.Refuse},
		"emptied before a database was":   {self: "db-0", lease: lease.Lease{Term: 1}, want: lease.Take, reason: "makes"},
		"emptied, replica":                {self: "db-1", lease: held(""), data: replica, running: true, want: lease.Wait},
		"no API, alone":                   {self: "db-0", unknown: true, members: []string{"db-0"}, data: primary, want: lease.Hold},
		"no API, alone, replica's copy":   {self: "db-0", unknown: true, members: []string{"db-0"}, data: replica, want: lease.Wait},
		"no API, alone, empty":            {self: "db-0", unknown: true, members: []string{"db-0"}, want: lease.Wait},
		"no API, others exist":            {self: "db-0", unknown: true, data: primary, want: lease.Wait, reason: "API server"},
		"no API, grew after alone began":  {self: "db-0", unknown: true, data: primary, running: true, leading: true, want: lease.Hold},
		"no API, only another is wanted":  {self: "db-0", unknown: true, members: []string{"db-1"}, data: primary, want: lease.Wait},
		"no API, not even the first time": {self: "db-0", unknown: true, want: lease.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			f := lease.Facts{
				Self: tc.self, Incarnation: "now", Name: "db", Namespace: "ns", Lease: tc.lease, Known: !tc.unknown, Members: tc.members,
				SystemID: tc.systemID, Data: tc.data, Running: tc.running, Leading: tc.leading, HeldTerm: tc.heldTerm,
				Replaced: tc.replaced, LedTerm: tc.ledTerm,
			}
			if f.Members == nil {
				f.Members = members
			}
			got, reason := lease.Decide(f)
			if got != tc.want || !strings.Contains(reason, tc.reason) {
				t.Errorf("got %s (%s), want %s (%s)", got, reason, tc.want, tc.reason)
			}
			if reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestTaken(t *testing.T) {
	got := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", Released: 9, Version: "1"}.Taken(lease.Identity("db-0", "b"))
	if got.Holder != "db-0_b" || got.HeldBy() != "db-0" || got.Term != 5 || got.Released != 0 || got.SystemID != "7" || got.Version != "1" {
		t.Errorf("got %+v", got)
	}
}
