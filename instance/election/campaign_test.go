package election

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

func parse(t *testing.T, text string) lease.Sync {
	t.Helper()
	s, err := lease.ParseSync(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ballot is a vote given in term 4.
func ballot(timeline postgres.Timeline, received postgres.LSN) Vote {
	return Vote{Incarnation: "x", SystemID: "7", Complete: true, Granted: true, Promised: 4, Timeline: timeline, Received: received, Detached: true}
}

// TestCampaign has db-1 stand, with some votes, for a Lease of db-0 that nobody renews.
func TestCampaign(t *testing.T) {
	members := []string{"db-0", "db-1", "db-2"}
	refusal := Vote{SystemID: "7", Refusal: "promised the holder to elect nobody"}
	for name, tc := range map[string]struct {
		sync      string
		own       Vote
		votes     map[string]Vote
		change    func(*lease.Lease, *Rules)
		suspected bool
		at        time.Duration // since the own vote
		take      bool
		better    string
		over      string
		missing   string
		lost      int64 // -1 is unknown
	}{
		"quorum":                               {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8)}, take: true},
		"both have the same":                   {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 9)}, take: true},
		"one vote is not enough":               {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9)},
		"nor is it later":                      {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), at: 2 * second, over: "not enough", missing: "db-2 does not answer"},
		"nor a refusal":                        {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": refusal}, at: 2 * second, over: "not enough", missing: "db-2: promised"},
		"nor the former primary's":             {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-0": ballot(1, 9)}, at: 2 * second, over: "not enough", missing: "db-2"},
		"one is enough of two that have each":  {sync: "required ANY 2 (db-1,db-2)", own: ballot(1, 9), take: true},
		"and with a joint record both count":   {sync: "required ANY 2 (db-1,db-2); ANY 1 (db-1,db-2)", own: ballot(1, 9)},
		"a record that only the other is of":   {sync: "required ANY 1 (db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 9)}, take: true},
		"the other has more":                   {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 10)}, better: "db-2"},
		"more on an older timeline":            {sync: "required ANY 1 (db-1,db-2)", own: ballot(2, 9), votes: map[string]Vote{"db-2": ballot(1, 10)}, take: true},
		"a vote that is not detached":          {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": {SystemID: "7", Granted: true, Promised: 4}}},
		"a vote of an older promise":           {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": {SystemID: "7", Granted: true, Promised: 3, Detached: true}}},
		"a vote of another database":           {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": {SystemID: "8", Granted: true, Promised: 4, Detached: true}}},
		"a vote of no member":                  {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-3": ballot(1, 9)}},
		"a newer term":                         {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": {SystemID: "7", SeenTerm: 5}}, over: "term 5"},
		"asynchronous, at first":               {own: ballot(1, 9)},
		"asynchronous, the other replica says": {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8)}, take: true, lost: -1},
		"asynchronous, nobody answers":         {own: ballot(1, 9), at: 2 * second, take: true, lost: -1},
		"asynchronous, the other has more":     {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 10)}, better: "db-2"},
		"asynchronous, all answer":             {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8), "db-0": ballot(1, 9)}, take: true},
		"too far behind":                       {own: ballot(1, 9), change: func(l *lease.Lease, _ *Rules) { l.WALLSN = 1000 }, at: 2 * second, over: "lacks 991 bytes"},
		"on an older timeline":                 {own: ballot(1, 9), change: func(l *lease.Lease, _ *Rules) { l.Timeline = 2 }, at: 2 * second, over: "timeline 1 only"},
		"required since, but not recorded":     {own: ballot(1, 9), change: func(_ *lease.Lease, r *Rules) { r.Required = true }, at: 2 * second, over: "not enough"},
		"preferred, with the quorum":           {sync: "preferred ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8)}, take: true},
		"preferred, without it":                {sync: "preferred ANY 1 (db-1,db-2)", own: ballot(1, 9), at: 2 * second, take: true, lost: -1},
		"suspected":                            {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8)}, suspected: true, take: true},
		"disabled":                             {sync: "required ANY 1 (db-1,db-2)", own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8)}, change: func(_ *lease.Lease, r *Rules) { r.Enabled = false }, over: "disabled"},
		"no member":                            {own: ballot(1, 9), change: func(l *lease.Lease, _ *Rules) { l.Members = []string{"db-0", "db-2"} }, over: "not a member"},
		"not to be read":                       {own: ballot(1, 9), change: func(l *lease.Lease, _ *Rules) { l.Problem = "bad" }, over: "bad"},
		"another database":                     {own: ballot(1, 9), change: func(l *lease.Lease, _ *Rules) { l.SystemID = "8" }, over: "the database 7, not 8"},
		"made anew, one does not answer":       {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8)}, change: anew, at: 2 * second, over: "not enough", missing: "db-0 does not answer"},
		"made anew, all answer":                {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8), "db-0": ballot(1, 9)}, change: anew, take: true, lost: -1},
		"made anew, one has no data":           {own: ballot(1, 9), votes: map[string]Vote{"db-2": {}, "db-0": ballot(1, 9)}, change: anew, take: true, lost: -1},
		"an old copy, with a former member": {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8), "db-0": ballot(1, 9)}, change: func(l *lease.Lease, _ *Rules) {
			l.Term, l.Members = 3, []string{"db-0", "db-1", "db-9"}
		}, take: true, lost: -1},
		"made anew, another has more": {own: ballot(1, 9), votes: map[string]Vote{"db-2": ballot(1, 8), "db-0": ballot(2, 9)}, change: anew, over: "db-0 has more"},
	} {
		t.Run(name, func(t *testing.T) {
			l := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", Timeline: 1, WALLSN: 20, Members: members, Sync: parse(t, tc.sync), Version: "5"}
			rules := Rules{Enabled: true, MaxLag: 100, Members: members, Number: 1}
			if tc.change != nil {
				tc.change(&l, &rules)
			}
			own := tc.own
			own.Granted, own.Detached, own.Promised, own.SeenTerm = false, false, 0, 4
			c := NewCampaign(0, "db-1", rules, l, own, tc.suspected)
			step := c.Next(0)
			if tc.suspected {
				for from := range tc.votes {
					c.Reply(0, from, &Vote{SystemID: "7", Granted: true}, "")
				}
				step = c.Next(0)
			}
			if step.Detach {
				c.Reply(0, "db-1", &tc.own, "")
				step = c.Next(0)
			}
			for from, vote := range tc.votes {
				c.Reply(0, from, &vote, "")
				step = c.Next(0)
			}
			if tc.at > 0 {
				step = c.Next(tc.at)
			}
			if step.Take != tc.take || step.Better != tc.better || step.Over != (tc.over != "") || !strings.Contains(step.Reason, tc.over) ||
				!strings.Contains(strings.Join(step.Missing, ", "), tc.missing) {
				t.Fatalf("got %+v", step)
			}
			if !step.Take {
				return
			}
			if step.Lease.Holder != "db-1_x" || step.Lease.Term != 5 || step.Lease.Version != "5" || step.Lease.WALLSN != 9 || step.Lease.SystemID != "7" ||
				!slices.Equal(step.Lease.Members, members) || step.Lease.Newest <= l.Timeline || step.AgainstRenewals != tc.suspected {
				t.Errorf("took %+v", step.Lease)
			}
			if lost := step.LostBytes; tc.lost < 0 && (lost != nil || step.LostUnknown == "") || tc.lost >= 0 && (lost == nil || *lost != tc.lost) {
				t.Errorf("lost %v, %q", step.LostBytes, step.LostUnknown)
			}
		})
	}
}

// TestUnreachable has a candidate without a quorum not take a member for gone that could not be reached at once.
func TestUnreachable(t *testing.T) {
	l := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", WALLSN: 20, Members: []string{"db-0", "db-1", "db-2"}}
	own, more := ballot(1, 9), ballot(1, 10)
	c := NewCampaign(0, "db-1", Rules{Enabled: true, MaxLag: 100}, l, own, false)
	c.Reply(0, "db-1", &own, "")
	c.Reply(0, "db-2", nil, "does not answer")
	if step := c.Next(askAgain); step.Take || !slices.Contains(step.Ask, "db-2") {
		t.Fatalf("got %+v", step)
	}
	c.Reply(askAgain, "db-2", &more, "")
	if step := c.Next(askAgain); step.Better != "db-2" {
		t.Errorf("got %+v", step)
	}
}

func anew(l *lease.Lease, _ *Rules) { *l = lease.Lease{Version: l.Version} }

// TestInheritance has db-1 and others find a Lease that db-0 released at 9.
func TestInheritance(t *testing.T) {
	released := lease.Lease{Term: 4, SystemID: "7", Timeline: 2, Newest: 2, Members: []string{"db-0", "db-1", "db-2"}, Released: 9, ReleasedBy: "db-0_a", Successor: "db-1"}
	for name, tc := range map[string]struct {
		self   string
		own    Vote
		change func(*lease.Lease)
		at     time.Duration
		take   bool
	}{
		"the successor":                  {self: "db-1", own: ballot(2, 9), take: true},
		"another":                        {self: "db-2", own: ballot(2, 9)},
		"another, later":                 {self: "db-2", own: ballot(2, 9), at: second, take: true},
		"no successor":                   {self: "db-2", own: ballot(2, 9), change: func(l *lease.Lease) { l.Successor = "" }, take: true},
		"the successor has not all":      {self: "db-1", own: ballot(2, 8)},
		"the successor is on a dead end": {self: "db-1", own: ballot(1, 99)},
		"a timeline was not noted":       {self: "db-1", own: ballot(2, 9), change: func(l *lease.Lease) { l.Newest = 3 }},
		"cleared by somebody":            {self: "db-1", own: ballot(2, 9), change: func(l *lease.Lease) { l.ReleasedBy = "" }},
	} {
		l := released
		if tc.change != nil {
			tc.change(&l)
		}
		own := tc.own
		own.Granted, own.Detached, own.Promised = false, false, 0
		// Failover may be disabled: this is none.
		step := NewCampaign(0, tc.self, Rules{}, l, own, false).Next(tc.at)
		if step.Take != tc.take || step.Take && (step.LostBytes == nil || *step.LostBytes != 0) {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

// TestForgone has a candidate that lacks the end of a log that was released in good order: who has it may come back.
func TestForgone(t *testing.T) {
	l := lease.Lease{Term: 4, SystemID: "7", Timeline: 2, Newest: 2, WALLSN: 12, Members: []string{"db-0", "db-1"}, Released: 12, ReleasedBy: "db-0_a", Successor: "db-1"}
	own := ballot(2, 9)
	c := NewCampaign(0, "db-1", Rules{Enabled: true, MaxLag: 100, LeaseDuration: 10 * second}, l, own, false)
	c.Reply(0, "db-1", &own, "")
	c.Reply(0, "db-0", nil, "does not answer")
	if step := c.Next(3 * second); step.Take || step.Better != "db-0" || step.At != 10*second {
		t.Fatalf("got %+v", step)
	}
	if step := c.Next(10 * second); !step.Take || step.LostBytes == nil || *step.LostBytes != 3 {
		t.Errorf("got %+v", step)
	}
}

// TestBetterCandidate has one with more that does not take the Lease: it is waited for, and then counts no more.
func TestBetterCandidate(t *testing.T) {
	for sync, take := range map[string]bool{"": true, "required ANY 1 (db-1,db-2)": false, "required ANY 2 (db-1,db-2)": true} {
		l := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", WALLSN: 20, Members: []string{"db-0", "db-1", "db-2"}, Sync: parse(t, sync)}
		own, more := ballot(1, 9), ballot(1, 10)
		c := NewCampaign(0, "db-1", Rules{Enabled: true, MaxLag: 100}, l, own, false)
		c.Reply(0, "db-1", &own, "")
		c.Reply(0, "db-2", &more, "")
		if step := c.Next(0); step.Better != "db-2" || step.At != 2*second {
			t.Fatalf("%q: %+v", sync, step)
		}
		if step := c.Next(2 * second); step.Take != take || !take && !slices.Contains(step.Missing, "db-2 has more, but does not take over") {
			t.Errorf("%q: %+v", sync, step)
		}
	}
}

// TestProbe has a candidate that suspects the holder disturb nobody as long as others hear it.
func TestProbe(t *testing.T) {
	l := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", Members: []string{"db-0", "db-1", "db-2"}, Sync: parse(t, "required ANY 1 (db-1,db-2)")}
	c := NewCampaign(0, "db-1", Rules{Enabled: true}, l, Vote{SystemID: "7", Complete: true}, true)
	step := c.Next(0)
	if step.Detach || !slices.Equal(step.Ask, []string{"db-0", "db-2"}) || !c.Request().Probe || c.Request().Free {
		t.Fatalf("got %+v, %+v", step, c.Request())
	}
	c.Reply(0, "db-2", &Vote{SystemID: "7", Refusal: "still hears the primary"}, "")
	if step = c.Next(second / 10); step.Detach || len(step.Ask) > 0 {
		t.Fatalf("got %+v", step)
	}
	if step = c.Next(askAgain); !slices.Contains(step.Ask, "db-2") {
		t.Fatalf("got %+v", step)
	}
	c.Reply(0, "db-2", &Vote{SystemID: "7", Granted: true}, "")
	if step = c.Next(askAgain); !step.Detach || !slices.Contains(step.Ask, "db-2") || c.Request().Probe {
		t.Fatalf("got %+v, %+v", step, c.Request())
	}
}
