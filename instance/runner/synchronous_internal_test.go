package runner

import (
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
)

// TestSettling goes through the looks of a primary after its quorum became ANY 1 (b).
func TestSettling(t *testing.T) {
	quorum := lease.Quorum{Number: 1, Standbys: []string{"b"}}
	begun := time.Now()
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	b := pg.Standby{Instance: "b", Streaming: true, Counted: true, Flushed: 100}
	for name, tc := range map[string]struct {
		// change makes the look at a second another one.
		change  func(second int, s *standbys)
		renewed int
		term    func(second int) int32
		// settled is the second at which it is, 0 for never.
		settled int
	}{
		"soon":                 {renewed: 4, settled: 4},
		"checkpointer busy":    {renewed: 9, settled: 7, change: func(second int, s *standbys) { s.idle = second > 5 }},
		"another still counts": {renewed: 9, settled: 7, change: func(second int, s *standbys) { s.all[1].Counted = second <= 5 }},
		"does not count yet":   {renewed: 9, settled: 7, change: func(second int, s *standbys) { s.all[0].Counted = second > 5 }},
		"has not caught up": {renewed: 9, settled: 8, change: func(second int, s *standbys) {
			s.written = 200
			if second > 7 {
				s.all[0].Flushed = 200
			}
		}},
		"not renewed since": {renewed: 3},
		"a new term begins anew": {renewed: 9, settled: 8, term: func(second int) int32 {
			if second >= 4 {
				return 2
			}
			return 1
		}},
		"nobody of the quorum has": {renewed: 9, change: func(_ int, s *standbys) { s.all = s.all[1:] }},
	} {
		var s settling
		got := 0
		for second := range 10 {
			look := standbys{at: at(second), written: 100, idle: true, all: []pg.Standby{b, {Instance: "c", Streaming: true, Flushed: 300}}}
			if tc.change != nil {
				tc.change(second, &look)
			}
			term := int32(1)
			if tc.term != nil {
				term = tc.term(second)
			}
			if s.look(term, quorum, look, at(tc.renewed)) && got == 0 {
				got = second
			}
		}
		if got != tc.settled {
			t.Errorf("%s: settled at %d, want %d", name, got, tc.settled)
		}
	}
}
