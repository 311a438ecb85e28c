package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

// TestHealth has a replica be looked at once a second, and wants each verdict after so many looks, and not before.
func TestHealth(t *testing.T) {
	well := pg.Replay{Written: 100, Received: 100, Replayed: 100, Startup: 7, Idle: true, Receiver: 8, Heard: "0", Timeout: 5 * time.Second}
	busy := func(r pg.Replay, i int) pg.Replay { // The log grows, and is received.
		r.Written += postgres.LSN(i)
		r.Received, r.Replayed, r.Heard = r.Written, r.Written, time.Duration(i).String()
		return r
	}
	for name, tc := range map[string]struct {
		// replay is what is seen at a look, work the processor time.
		replay func(i int) (r pg.Replay, work int64)
		// hung and late are the first looks that say so, 0 for none; why is a part of what they say.
		hung, late int
		why        string
	}{
		"nothing to do": {replay: func(i int) (pg.Replay, int64) {
			r := busy(well, i)
			r.Written, r.Received, r.Replayed = 100, 100, 100
			return r, 0
		}},
		"keeps up": {replay: func(i int) (pg.Replay, int64) {
			r := busy(well, i)
			r.Replayed = r.Received - 1
			return r, 0
		}},
		"a record that is not complete": {replay: func(i int) (pg.Replay, int64) {
			r := busy(well, min(i, 20))
			r.Replayed, r.Heard = min(r.Received, 110), time.Duration(i).String()
			if i < 20 {
				r.Replayed = r.Received
			}
			return r, 0
		}},
		"replay hangs": {hung: 40, late: 72, why: "replays", replay: func(i int) (pg.Replay, int64) {
			r := busy(well, i)
			r.Replayed, r.Idle = min(r.Received, 110), false
			return r, 0
		}},
		"replay hangs, and seems to wait for log": {hung: 40, late: 72, why: "replays", replay: func(i int) (pg.Replay, int64) {
			r := busy(well, i)
			r.Replayed = min(r.Received, 110)
			return r, 0
		}},
		"a record that takes long": {late: 72, why: "keep up", replay: func(i int) (pg.Replay, int64) {
			r := busy(well, i)
			r.Replayed, r.Idle = min(r.Received, 110), false
			return r, int64(i)
		}},
		"replay is held": {late: 72, why: "paused", replay: func(i int) (pg.Replay, int64) {
			r := busy(well, i)
			r.Replayed, r.Idle = min(r.Received, 110), false
			if i > 10 {
				r.Hold = "replay is paused"
			}
			return r, 0
		}},
		"receiver hangs": {hung: 41, why: "receives", replay: func(i int) (pg.Replay, int64) {
			return busy(well, min(i, 11)), 0
		}},
		"receiver may be silent": {replay: func(i int) (pg.Replay, int64) {
			r := busy(well, min(i, 11))
			r.Timeout = 0
			return r, 0
		}},
		"receiver has more patience": {hung: 71, why: "receives", replay: func(i int) (pg.Replay, int64) {
			r := busy(well, min(i, 11))
			r.Timeout = 20 * time.Second
			return r, 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHealth(bounds{hungLooks: hungLooks, maxAge: maxAge})
			hung, late, said := 0, 0, ""
			for i := range 300 {
				r, work := tc.replay(i)
				h.look(time.Unix(int64(i), 0), r, work)
				if h.hung != "" && hung == 0 {
					hung, said = i, said+h.hung
				}
				if i > 0 && h.late != "" && late == 0 {
					late, said = i, said+h.late
				}
			}
			if hung != tc.hung || late != tc.late || !strings.Contains(said, tc.why) {
				t.Errorf("hung from look %d on, late from %d on, want %d and %d; said %q", hung, late, tc.hung, tc.late, said)
			}
		})
	}
}

// TestLagEnds has a replica that began behind, or fell behind, take part when it keeps up, and not go to and fro before.
func TestLagEnds(t *testing.T) {
	h := newHealth(bounds{hungLooks: hungLooks, maxAge: maxAge})
	changes := ""
	for i := range 1000 {
		r := pg.Replay{Written: postgres.LSN(100 * (i + 1)), Startup: 7, Receiver: 8, Heard: time.Duration(i).String(), Timeout: time.Second}
		r.Received, r.Replayed = r.Written, r.Written
		switch {
		case i < 100: // Far behind from the beginning.
			r.Replayed = 0
		case 200 <= i && i < 500: // Always as far behind as is allowed, now and then more.
			r.Replayed -= postgres.LSN(100 * (50 + i%20))
		case 500 <= i && i < 800: // It makes half of it up.
			r.Replayed -= postgres.LSN(100 * (20 + i%20))
		}
		before := h.late != ""
		h.look(time.Unix(int64(i), 0), r, int64(i))
		if late := h.late != ""; late != before {
			changes += time.Duration(i).String() + " "
		}
	}
	if changes != "100ns 272ns 800ns " {
		t.Errorf("changed at %s", changes)
	}
	if len(h.marks) > maxMarks {
		t.Errorf("%d positions are remembered", len(h.marks))
	}
}
