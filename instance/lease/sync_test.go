package lease_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/acme/pg-operator/instance/lease"
)

func TestParseSync(t *testing.T) {
	for text, problem := range map[string]string{
		"": "",
		"required ANY 1 (db-1,db-2); ANY 1 (db-1)":                    "",
		"preferred ANY 2 (a,b,c)":                                     "",
		"required":                                                    "form",
		"required ":                                                   "form",
		"ANY 1 (db-1)":                                                "begin",
		"required ANY 2 (db-1)":                                       "never be met",
		"required ANY 0 (db-1)":                                       "form",
		"required ANY 1 (db-1,db-1)":                                  "twice",
		"required ANY 1 (db-1,)":                                      "no instance",
		"required ANY 1 ()":                                           "form",
		"required ANY 1 (*)":                                          "form",
		"required FIRST 1 (db-1)":                                     "form",
		"required ANY 1 (db-1);ANY 1 (db-2)":                          "form",
		"required ANY 1 (" + strings.Repeat("a", 300) + ")":           "no instance",
		"required ANY 1 (" + strings.Repeat("a,", 20) + "a)":          "more than 16",
		"required " + strings.Repeat("ANY 1 (db-1); ", 1200):          "longer",
		"required" + strings.Repeat(" ANY 1 (a);", 5) + " bad":        "form",
		"required" + strings.Repeat(" ANY 1 (a);", 32) + " ANY 1 (b)": "more than 32",
	} {
		s, err := lease.ParseSync(text)
		if problem == "" {
			if err != nil || s.String() != text {
				t.Errorf("%q: %q, %v", text, s, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %q", text, err, problem)
		}
	}
}

// TestSyncRoundTrip reads what was written.
func TestSyncRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := lease.Sync{Required: rapid.Bool().Draw(t, "required")}
		for range rapid.IntRange(1, 4).Draw(t, "quorums") {
			names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]([a-z0-9-]{0,20}[a-z0-9])?`), 1, 5, rapid.ID).Draw(t, "standbys")
			s.InForce = append(s.InForce, lease.Quorum{Number: rapid.IntRange(1, len(names)).Draw(t, "number"), Standbys: names})
		}
		if got, err := lease.ParseSync(s.String()); err != nil || !got.Equal(s) || got.String() != s.String() {
			t.Fatalf("%q was read as %q, %v", s, got, err)
		}
	})
}

// TestSame tells a change of each field on which something depends from the progress of a renewal.
func TestSame(t *testing.T) {
	one, two := int64(1), int64(2)
	base := func() lease.Lease {
		return lease.Lease{
			Holder: "db-0_a", Term: 4, SystemID: "7", Members: []string{"db-0", "db-1"}, Duration: time.Second,
			Sync:     lease.Sync{Required: true, InForce: []lease.Quorum{{Number: 1, Standbys: []string{"db-1"}}}},
			Failover: &lease.Failover{From: "db-1", To: "db-0", LostBytes: &one},
		}
	}
	same := base()
	same.Version, same.WALLSN, same.Timeline = "9", 9, 9
	if !base().Same(same) {
		t.Error("a renewal changes the Lease")
	}
	for name, change := range map[string]func(*lease.Lease){
		"holder":     func(l *lease.Lease) { l.Holder = "" },
		"term":       func(l *lease.Lease) { l.Term++ },
		"system id":  func(l *lease.Lease) { l.SystemID = "8" },
		"released":   func(l *lease.Lease) { l.Released = 1 },
		"releasedBy": func(l *lease.Lease) { l.ReleasedBy = "x" },
		"successor":  func(l *lease.Lease) { l.Successor = "db-1" },
		"members":    func(l *lease.Lease) { l.Members = []string{"db-0"} },
		"required":   func(l *lease.Lease) { l.Sync.Required = false },
		"quorums":    func(l *lease.Lease) { l.Sync.InForce = append(l.Sync.InForce, l.Sync.InForce...) },
		"quorum":     func(l *lease.Lease) { l.Sync.InForce[0].Standbys = []string{"db-2"} },
		"no record":  func(l *lease.Lease) { l.Failover = nil },
		"lost":       func(l *lease.Lease) { l.Failover.LostBytes = &two },
		"not known":  func(l *lease.Lease) { l.Failover.LostBytes = nil },
		"duration":   func(l *lease.Lease) { l.Duration++ },
		"problem":    func(l *lease.Lease) { l.Problem = "bad" },
	} {
		changed := base()
		if change(&changed); base().Same(changed) || changed.Same(base()) {
			t.Errorf("%s: the change is not seen", name)
		}
	}
}

// TestMended has a holder go on with a Lease that somebody damaged, and nobody else.
func TestMended(t *testing.T) {
	known := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", WALLSN: 5, Version: "1", Sync: lease.Sync{InForce: []lease.Quorum{{Number: 1, Standbys: []string{"db-1"}}}}}
	damaged := lease.Lease{Holder: "db-0_a", Term: 4, Version: "2", Problem: "bad"}
	if got := damaged.Mended(known); got.Problem != "" || got.Version != "2" || got.WALLSN != 5 || !got.Sync.Synchronous() {
		t.Errorf("got %+v", got)
	}
	damaged.Term++
	if got := damaged.Mended(known); got.Problem == "" || got.Sync.Synchronous() {
		t.Errorf("another term's was mended: %+v", got)
	}
}

// TestYielded gives the Lease up, and takes it.
func TestYielded(t *testing.T) {
	l := lease.Lease{Holder: "db-0_a", Term: 4}.Yielded(9, "db-1")
	if l.Holder != "" || l.ReleasedBy != "db-0_a" || l.Released != 9 || l.Successor != "db-1" || l.Term != 4 {
		t.Errorf("got %+v", l)
	}
	if l = l.Taken("db-1_b"); l.ReleasedBy != "" || l.Released != 0 || l.Successor != "" || l.Term != 5 {
		t.Errorf("got %+v", l)
	}
}

// TestSince takes nothing from a Lease that is older than what is known.
func TestSince(t *testing.T) {
	l := lease.Lease{
		Holder: "db-0_a", Term: 4, SystemID: "7", Version: "9", Members: []string{"db-0"},
		Sync: lease.Sync{Required: true, InForce: []lease.Quorum{{Number: 1, Standbys: []string{"db-1"}}}},
	}
	if got := l.Since(4); !got.Same(l) {
		t.Errorf("got %+v", got)
	}
	got := l.Since(5)
	if got.Holder != "" || got.Sync.Synchronous() || got.Term != 4 || got.Version != "9" || got.SystemID != "7" || len(got.Members) != 1 {
		t.Errorf("got %+v", got)
	}
}
