package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/postgres"
)

// A postmaster that hangs lets the sessions it has go on, but no new one in: only a new connection shows that.
const (
	// knockInterval is how often a new connection is tried where a replica may take over, knockSeldom elsewhere.
	knockInterval = 500 * time.Millisecond
	knockSeldom   = 3 * time.Second
	// knockTimeout is how long one may take: to fork and authenticate takes milliseconds.
	knockTimeout = time.Second
	// knockTicks are the parts of that time. A part that the machine gave to others counts once, however long it was:
	// what the agent did not get, the postmaster may not have got either.
	knockTicks = 20
	// closedAfter is how many attempts in a row fail before that is believed, hopelessAfter before a replica's PostgreSQL
	// is started again.
	closedAfter   = 3
	hopelessAfter = 6
)

// door tells whether a server lets new sessions in. Its zero value is open.
type door struct {
	mu     sync.Mutex
	misses int
	// last is why the last attempt failed.
	last error
}

// watch tries new connections until ctx ends, and tells when the door was found closed, or open again.
func (d *door) watch(ctx context.Context, interval func() time.Duration, knock func(context.Context) error, changed func()) {
	timer := time.NewTimer(interval())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begun := time.Now()
		limited, cancel := patient(ctx, knockTimeout)
		err := knock(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if d.note(err) {
			changed()
		}
		timer.Reset(max(0, interval()-time.Since(begun)))
	}
}

// patient ends a context after the agent itself has had a time, whatever the clock says.
func patient(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		tick := time.NewTicker(limit / knockTicks)
		defer tick.Stop()
		for range knockTicks {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// note counts an attempt, and tells whether it changed what is believed.
func (d *door) note(err error) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.misses
	var answer *pgconn.PgError
	if err == nil || errors.As(err, &answer) && !lostFiles(answer) {
		// Also who is told that there are too many sessions was answered by a postmaster that works.
		d.misses, d.last = 0, nil
	} else {
		d.misses, d.last = d.misses+1, err
	}
	for _, limit := range []int{closedAfter, hopelessAfter} {
		if (before >= limit) != (d.misses >= limit) {
			return true
		}
	}
	return false
}

// lostFiles tells of answers for which the data directory, or a part of it, is missing or cannot be read. A database that
// was dropped has no detail.
func lostFiles(answer *pgconn.PgError) bool {
	class := answer.Code[:min(2, len(answer.Code))]
	return class == "58" || class == "XX" || answer.Code == "3D000" && answer.Detail != ""
}

// closed says why the server is taken for one that lets nobody in; nil if it is not.
func (d *door) closed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.misses < closedAfter {
		return nil
	}
	return fmt.Errorf("it lets no new session in (attempts: %d): %w", d.misses, d.last)
}

// hopeless says why the server is to be started again; nil if it is not.
func (d *door) hopeless() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.misses < hopelessAfter {
		return nil
	}
	return fmt.Errorf("it lets no new session in: %w", d.last)
}

// missed tells whether the last attempt failed.
func (d *door) missed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.misses > 0
}

// knock opens a session and closes it again.
func (w *serverWatch) knock(ctx context.Context) error {
	conn, err := w.runner.server().Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// knocking is how often to try: often where it leads to a failover, and where it failed.
func (w *serverWatch) knocking() time.Duration {
	if w.door.missed() {
		return knockInterval
	}
	w.runner.mu.Lock()
	defer w.runner.mu.Unlock()
	if f := w.runner.facts; f.Server.Replica || f.Config == nil || len(f.Config.Members) < 2 {
		return knockSeldom
	}
	return knockInterval
}

// doorChanged has what the door tells become facts at once: the watch's own session may hang as well.
func (w *serverWatch) doorChanged() {
	err := w.door.closed()
	if err == nil {
		w.poke()
		return
	}
	r := w.runner
	r.notAccepting(w.process, err)
	r.updateServer(w.process, func(f *agent.Facts) {
		if !f.Server.Replica {
			r.abandon(r.standbys, f.Server.LastError)
			r.poke()
		} else if hopeless := w.door.hopeless(); hopeless != nil {
			f.Server.Hung = "PostgreSQL hangs: " + hopeless.Error()
		}
	})
}

// poke has the server looked at now.
func (w *serverWatch) poke() { w.poked.ring() }
