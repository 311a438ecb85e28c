package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/pg"
)

func (r *Runner) clone(ctx context.Context) error {
	turn, err := r.turn(ctx)
	if err != nil {
		return err
	}
	cloning, end := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { turn.Keep(cloning) })
	defer kept.Wait()
	defer end()
	return r.replaceData(ctx, (*Runner).cloned, func(primary pg.Upstream) error {
		return r.options.Volume.Clone(ctx, r.programs, primary)
	})
}

const (
	// turnInterval is how often an instance asks whether it is its turn to be cloned, half of it by chance more: of two
	// that ask at the same time neither may get it.
	turnInterval = 300 * time.Millisecond
	// turnLife is for how long the turn is an instance's of which nothing is heard.
	turnLife = 30 * time.Second
)

// turn waits until no other instance is cloned: a clone reads the whole database from the primary.
func (r *Runner) turn(ctx context.Context) (*pg.Turn, error) {
	if err := r.refreshKeys(); err != nil {
		return nil, err
	}
	defer r.update(func(f *agent.Facts) { f.CloneAfter = "" })
	for {
		r.mu.Lock()
		primary, others := r.upstream(r.facts.Primary), r.others()
		r.mu.Unlock()
		turn, other, err := takeTurn(ctx, primary, others)
		if err != nil || turn != nil {
			return turn, err
		}
		r.update(func(f *agent.Facts) { f.CloneAfter = other })
		select {
		case <-time.After(turnInterval + rand.N(turnInterval/2)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func takeTurn(ctx context.Context, primary pg.Upstream, others []string) (*pg.Turn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*observeTimeout)
	defer cancel()
	return primary.Turn(ctx, others, turnLife)
}

func (r *Runner) rewind(ctx context.Context) error {
	rewound := func(r *Runner) { r.facts.Repairs.Rewinds++ }
	return r.replaceData(ctx, rewound, func(primary pg.Upstream) error {
		if err := awaitCheckpoint(ctx, primary); err != nil {
			return err
		}
		return r.options.Volume.Rewind(ctx, r.programs, primary)
	})
}

// checkpointPatience is how long a new primary may take to write its first checkpoint.
const checkpointPatience = 5 * time.Minute

// awaitCheckpoint waits until a new primary's control file has its timeline: before that, pg_rewind takes the primary
// for one that never left the old timeline, and does nothing.
func awaitCheckpoint(ctx context.Context, primary pg.Upstream) error {
	ctx, cancel := context.WithTimeout(ctx, checkpointPatience)
	defer cancel()
	tick := time.NewTicker(freeInterval)
	defer tick.Stop()
	for {
		if settled, err := primary.Settled(ctx); err != nil || settled {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s has not written a checkpoint since it became the primary: %w", primary.Host, ctx.Err())
		}
	}
}

// costly is after what time a failed attempt to replace data was a load on the primary.
const costly = 10 * time.Second

// replaceData changes a replica's data with the help of the primary, after which what was known of it is void. note
// notes that, with mu held.
func (r *Runner) replaceData(ctx context.Context, note func(*Runner), replace func(primary pg.Upstream) error) error {
	if err := r.refreshKeys(); err != nil {
		return err
	}
	primary, err := r.proven(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = replace(primary)
	r.inspect(ctx)
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		if time.Since(begun) > costly {
			r.update(func(*agent.Facts) { note(r) })
		}
		return err
	}
	r.update(func(f *agent.Facts) {
		note(r)
		f.Diagnosis, f.Server.Broken, f.Server.LastError = agent.Diagnosis{}, false, ""
		r.starts, r.memory.Ahead = starts{}, ""
		r.remember()
	})
	return nil
}

// proven is the primary, which is known to live, and to be the one: nothing of the instance's own is given up before.
func (r *Runner) proven(ctx context.Context) (pg.Upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*observeTimeout)
	defer cancel()
	r.mu.Lock()
	primary, expected := r.upstream(r.facts.Primary), r.facts.ExpectedSystemID()
	r.mu.Unlock()
	systemID, err := primary.Identify(ctx)
	if err != nil {
		return primary, err
	}
	if expected != "" && systemID != expected {
		return primary, fmt.Errorf("%s has the database %s, but this cluster is %s; nothing was changed", primary.Host, systemID, expected)
	}
	return primary, nil
}

// An instance that does not stream after it was cloned waits before it is cloned again, twice as long each time: a
// clone reads the whole database from the primary, and whatever spoiled the last one may do so again.
const (
	cloneWait    = time.Minute
	cloneWaitMax = 30 * time.Minute
)

// cloneWaitAfter is how long to wait after a number of clones that led to nothing.
func cloneWaitAfter(clones int) time.Duration {
	wait := cloneWait
	for range clones - 1 {
		wait = min(2*wait, cloneWaitMax)
	}
	return wait
}

// cloned notes a clone, and has the next one wait. The caller holds mu.
func (r *Runner) cloned() {
	r.facts.Repairs.Clones++
	r.facts.Repairs.Waiting = true
	clones := r.facts.Repairs.Clones
	time.AfterFunc(cloneWaitAfter(clones), func() {
		r.update(func(f *agent.Facts) {
			if f.Repairs.Clones == clones {
				f.Repairs.Waiting = false
			}
		})
	})
}

// diagnose asks the primary whether the data can follow it.
func (r *Runner) diagnose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*observeTimeout)
	defer cancel()
	control, err := r.options.Volume.ControlData(ctx, r.programs)
	if err != nil {
		return err
	}
	r.mu.Lock()
	primary, o, trouble, wasPrimary := r.upstream(r.facts.Primary), r.observed, "", r.facts.Data.Primary()
	hung := ""
	if r.facts.Repairs.Restarts > 0 {
		hung = r.facts.Server.Hung
	}
	if r.process != nil {
		trouble = r.process.ReceiverTrouble()
	}
	r.mu.Unlock()
	own := agent.Position{
		SystemID: control.SystemID, Timeline: max(control.LastTimeline(), o.Timeline),
		At: max(control.Checkpoint, control.MinRecoveryEnd, o.Received, o.Replayed, o.Written),
	}
	if wasPrimary {
		// The checkpoint's own record comes behind its position.
		own.At++
		own.Open = !control.State.CleanlyStopped()
	}
	source, err := primary.Source(ctx, own, control.SegmentSize)
	if err != nil {
		return err
	}
	d := agent.Diagnose(own, source).Hangs(hung)
	if d.Verdict == agent.VerdictStream {
		d.Detail = trouble
	}
	r.log.Info("Diagnosed why the instance does not follow", "verdict", d.Verdict, "detail", d.Detail)
	r.update(func(f *agent.Facts) {
		f.Diagnosis = d
		if d.Verdict == agent.VerdictAhead {
			r.memory.Ahead = d.Detail
			r.remember()
		}
	})
	if d.Verdict == agent.VerdictStream || d.Verdict == agent.VerdictForeign {
		time.AfterFunc(diagnosisLife, func() {
			r.update(func(f *agent.Facts) {
				if f.Diagnosis == d {
					f.Diagnosis = agent.Diagnosis{}
				}
			})
		})
	}
	return nil
}

// diagnosisLife is how long a diagnosis that asks for nothing is believed.
const diagnosisLife = 10 * time.Second
