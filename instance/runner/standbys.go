package runner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

// standbys are a primary's replicas as they were at a look.
type standbys struct {
	// at is when that was; zero if there was none since the server started.
	at time.Time
	// written is how far the primary had written its log.
	written postgres.LSN
	all     []pg.Standby
	// idle: the process by which commits begin to wait has nothing else to do.
	idle bool
}

// near are those that stream and lack at most lag bytes of the log, the one with most of it first, among equals the
// one that has applied most, which one that hangs has not, and then the first by name. members are the instances that count.
func (s standbys) near(lag uint64, members []string) []pg.Standby {
	var found []pg.Standby
	for _, standby := range s.all {
		if standby.Streaming && s.written.BytesAfter(standby.Flushed) <= lag && slices.Contains(members, standby.Instance) {
			found = append(found, standby)
		}
	}
	slices.SortStableFunc(found, func(a, b pg.Standby) int {
		return -cmp.Or(cmp.Compare(a.Flushed, b.Flushed), cmp.Compare(a.Replayed, b.Replayed))
	})
	return found
}

// lookAtStandbys asks a primary for its replicas.
func (w *serverWatch) lookAtStandbys(ctx context.Context, o pg.Observation) (standbys, error) {
	if o.Recovering {
		return standbys{}, nil
	}
	all, idle, err := pg.Standbys(ctx, w.conn)
	if err != nil {
		return standbys{}, err
	}
	return standbys{at: time.Now(), written: o.Written, all: all, idle: idle}, nil
}

// observeGathering is how often a primary is looked at while its replicas come: a failover needs one that was seen.
const observeGathering = 200 * time.Millisecond

// gathers tells whether replicas of a server that just started are missing.
func (w *serverWatch) gathers(s standbys) bool {
	r := w.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.starts.at) < quiet && len(r.heirs(s)) < len(r.others())
}
