package runner

import (
	"context"
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

const (
	// hungLooks are how many looks, at least countInterval apart, find no progress before a process is taken for one that
	// hangs. What the machine does not give to the agent does not count: PostgreSQL may not have got it either.
	hungLooks     = 30
	countInterval = 900 * time.Millisecond
	// maxAge is how old what a replica serves may be; it keeps up again when that is down to a sixth.
	maxAge = time.Minute
	// deafTimes is how often wal_receiver_timeout passes without a message before a receiver hangs, which should have
	// ended after the first time.
	deafTimes = 3
	// growths are how often the log grows under a process that says it waits for that, before it hangs: it may be right
	// once, because the end of the last record is not there yet.
	growths = 3
	// maxMarks bounds how many positions a replica that is behind remembers.
	maxMarks = 120
)

// bounds of a replica's health.
type bounds struct {
	hungLooks int
	maxAge    time.Duration
}

// health is how a replica's PostgreSQL gets on, by a series of looks.
type health struct {
	bounds
	last pg.Replay
	// work is the processor time that the replaying process had taken at the last counted look.
	work    int64
	counted time.Time
	// still are counted looks in a row without a move of what is replayed, grew those in which more was received; deaf are
	// those without a message of the primary.
	still, grew, deaf int
	// marks are positions of the primary that are not replayed yet, with when they were first seen; passed: one of this
	// connection was.
	marks  []mark
	passed bool
	// hold is what last kept it from replaying.
	hold string
	// hung says what does not go on, late why what it serves is old; empty if nothing does, or is not.
	hung, late string
	// caught: it has kept up once.
	caught bool
}

// mark is a position of the primary's log that was known at a time.
type mark struct {
	at   postgres.LSN
	seen time.Time
}

// newHealth is that of a server that was just started, which first has to catch up.
func newHealth(b bounds) health {
	return health{bounds: b, late: "catches up with its primary's log"}
}

// look learns from a replica at a time. work is the processor time of the process that replays.
func (h *health) look(now time.Time, r pg.Replay, work int64) {
	h.lag(now, r)
	if now.Sub(h.counted) >= countInterval {
		h.counted = now
		h.count(r, work)
		h.work = work
		h.last = r
	}
}

// count tells what hangs. Whoever keeps a replica from replaying on purpose is left alone.
func (h *health) count(r pg.Replay, work int64) {
	h.still++
	if r.Replayed != h.last.Replayed || r.Startup != h.last.Startup || work != h.work || r.Hold != "" || r.Received <= r.Replayed {
		h.still, h.grew = 0, 0
	} else if r.Received > h.last.Received {
		h.grew++
	}
	h.deaf++
	if r.Receiver == 0 || r.Timeout == 0 || r.Receiver != h.last.Receiver || r.Heard != h.last.Heard {
		h.deaf = 0
	}
	switch {
	case h.still >= h.hungLooks && (!r.Idle || h.grew >= growths):
		h.hung = "the process that replays the log hangs"
	case h.deaf >= max(h.hungLooks, int(deafTimes*r.Timeout/time.Second)):
		h.hung = "the process that receives the log hangs"
	default:
		h.hung = ""
	}
}

// lag tells how old what is served is: as old as the oldest position that the primary had, and that is not replayed.
func (h *health) lag(now time.Time, r pg.Replay) {
	if r.Receiver != h.last.Receiver || r.Receiver == 0 {
		h.marks, h.passed = nil, false // Positions of an earlier primary may be in no history.
	}
	// What is received may end within a record, whose rest comes with the next one.
	complete := r.Replayed >= r.Written || r.Idle && r.Received >= r.Written && r.Received == h.last.Received
	left := slices.DeleteFunc(h.marks, func(m mark) bool { return complete || m.at <= r.Replayed })
	h.passed = h.passed || len(left) < len(h.marks)
	h.marks = left
	if last := len(left) - 1; !complete && (last < 0 || r.Written > left[last].at && now.Sub(left[last].seen) >= countInterval) {
		h.mark(mark{r.Written, now})
	}
	if r.Hold != "" {
		h.hold = r.Hold
	}
	age := time.Duration(0)
	if len(h.marks) > 0 {
		age = now.Sub(h.marks[0].seen)
	}
	switch {
	case complete && r.Receiver != 0 || h.passed && age < h.maxAge/6:
		h.late, h.hold, h.caught = "", "", true
	case age > h.maxAge && h.hold != "":
		h.late = "what it serves is old: " + h.hold
	case age > h.maxAge:
		h.late = "what it serves is old: it does not keep up with its primary's log"
	}
}

// mark remembers a position; of too many every second one is forgotten.
func (h *health) mark(m mark) {
	if h.marks = append(h.marks, m); len(h.marks) <= maxMarks {
		return
	}
	kept := h.marks[:0]
	for i := 0; i < len(h.marks); i += 2 {
		kept = append(kept, h.marks[i])
	}
	h.marks = kept
}

// lookAtReplay learns how a replica gets on; what a primary once was is forgotten.
func (w *serverWatch) lookAtReplay(ctx context.Context, o pg.Observation) {
	if !o.Recovering {
		w.health.hung, w.health.late = "", ""
		return
	}
	r, err := pg.ObserveReplay(ctx, w.conn)
	if err != nil {
		w.runner.log.Error(err, "Failed to look at the replay of the log")
		return
	}
	w.health.look(time.Now(), r, pg.Work(r.Startup))
}
