package runner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// defaultLeaseSeconds is the Lease's duration until the configuration says another.
const defaultLeaseSeconds = 10

// The Lease of others, or of nobody, is looked at often at first after something happened, because somebody is about to
// take it.
const (
	freeInterval    = 200 * time.Millisecond
	freeIntervalMax = 2 * time.Second
)

// keeper reads the Lease, and renews it while this incarnation holds it. It shares nothing with the main loop that
// could hold it up.
type keeper struct {
	runner   *Runner
	identity string
	poked    bell

	// mu is held during a call, so that there is one at a time.
	mu   sync.Mutex
	last lease.Lease
	// known: last was read from the API server.
	known bool
	// winning is the term that the last election was about to begin.
	winning int32
	// written is the duration that this incarnation last wrote into the Lease, 0 before.
	written time.Duration
	// failing: the last attempt to read or renew it failed.
	failing atomic.Bool
	// doubt: a write of what commits wait for failed, and may come into force all the same.
	doubt atomic.Bool
	// electorate are whom this incarnation's writes of the Lease may have made members.
	electorate election.Electorate
	// reaffirm says when the Lease is taken anew, so that all members can follow again.
	reaffirm election.Reaffirm
}

func newKeeper(r *Runner) *keeper {
	return &keeper{
		runner: r, poked: newBell(),
		identity: lease.Identity(r.options.Instance, r.options.Incarnation),
	}
}

// answers tells whether the API server did when it was last asked.
func (k *keeper) answers() bool { return !k.failing.Load() }

// poke has the Lease read or renewed now.
func (k *keeper) poke() { k.poked.ring() }

func (k *keeper) run(ctx context.Context) {
	wait := freeInterval
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := false
	for {
		poked := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.poked:
			poked = true
		}
		begun := time.Now()
		held, err := k.look(ctx)
		switch {
		case held == k.identity:
			wait = k.pace() / 3
		case poked:
			wait = freeInterval
		default:
			wait = min(wait*3/2, freeIntervalMax, k.pace()/3)
		}
		if err != nil && ctx.Err() == nil {
			k.runner.log.Error(err, "Failed to read or renew the Lease")
			wait = k.pace() / 6
			k.askToHold(ctx)
		}
		if failed && err == nil {
			k.runner.publisher.doubt()
		}
		failed = err != nil
		k.failing.Store(failed)
		// A call that took its time brings the next one no later: the licence counts from the begin.
		timer.Reset(wait - time.Since(begun))
	}
}

// pace is the duration by which calls are timed: as long as the Lease has a shorter one than it is to get, that counts.
func (k *keeper) pace() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.paceLocked()
}

func (k *keeper) paceLocked() time.Duration {
	if k.written > 0 {
		return min(k.written, k.duration())
	}
	return k.duration()
}

func (k *keeper) duration() time.Duration {
	k.runner.mu.Lock()
	defer k.runner.mu.Unlock()
	if config := k.runner.facts.Config; config != nil {
		return time.Duration(config.LeaseDurationSeconds) * time.Second
	}
	return defaultLeaseSeconds * time.Second
}

// look renews the Lease if this incarnation holds it, else reads it. It returns who holds it.
func (k *keeper) look(ctx context.Context) (holder string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known && k.last.Holder == k.identity {
		err = k.renew(ctx)
		if !errors.Is(err, kube.ErrConflict) {
			return k.last.Holder, err
		}
		// A mere conflict is re-read; the next renewal follows at once if the Lease is still held.
		if err = k.read(ctx); err == nil && k.last.Holder == k.identity {
			err = k.renew(ctx)
		}
		return k.last.Holder, err
	}
	err = k.read(ctx)
	if err == nil {
		k.inquire(ctx)
	}
	return k.last.Holder, err
}

// Take takes the Lease if it still is as it was when that was decided, or learns that it is not.
func (k *keeper) Take(ctx context.Context, decided lease.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.last.Same(decided) {
		return nil // The main loop was told, and decides again.
	}
	if err := k.current(ctx); err != nil {
		return err
	}
	err := k.write(ctx, k.runner.founded(k.taken()))
	if errors.Is(err, kube.ErrConflict) {
		return k.read(ctx)
	}
	return err
}

// taken is the Lease as this incarnation takes it, in a term above all that were seen: it may have been made anew.
func (k *keeper) taken() lease.Lease {
	k.runner.mu.Lock()
	defer k.runner.mu.Unlock()
	l := k.last.Taken(k.identity)
	l.Term = max(l.Term, k.runner.memory.SeenTerm+1)
	return l
}

// current fails if another pod took the place of the agent's. An incarnation that never held the Lease cannot tell
// from it whether the one that does came earlier or later; but when this pod was the instance's while the Lease was
// as it is still, the holder came earlier.
func (k *keeper) current(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.paceLocked()/6)
	defer cancel()
	err := k.runner.kube.Current(ctx)
	if errors.Is(err, kube.ErrReplaced) {
		k.runner.update(func(f *agent.Facts) { f.Replaced = true })
	}
	return err
}

// Release notes in the Lease that the log ended at end in good order. The holder stays, because no other instance
// may take over in its absence yet.
func (k *keeper) Release(ctx context.Context, end postgres.LSN) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known || k.last.Holder != k.identity {
		return nil
	}
	l := k.last
	l.Released = end
	return k.write(ctx, l)
}

func (k *keeper) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.paceLocked()/6)
	defer cancel()
	l, err := k.runner.kube.Lease(ctx)
	k.noteMissing(err)
	if err != nil {
		if !k.known {
			k.goAlone()
		}
		return err
	}
	if l.Problem != "" {
		k.runner.log.Info("The Lease has an annotation that cannot be understood", "problem", l.Problem)
	}
	if l.Holder == k.identity {
		l = l.Mended(k.last)
	}
	k.learn(l)
	return nil
}

// write writes the Lease. For its holder that renews the licence if it succeeds; a Lease that is given away ends it before.
func (k *keeper) write(ctx context.Context, l lease.Lease) error {
	duration := k.duration()
	ctx, cancel := context.WithTimeout(ctx, min(duration, k.paceLocked())/6)
	defer cancel()
	l = k.annotate(l)
	if l.Holder != k.identity {
		k.runner.licence.revoke()
	}
	k.electorate.Writing(l.Members)
	begun := time.Now()
	renewal := k.runner.licence.renewing(duration, alone(l.Members, k.runner.options.Instance))
	written, err := k.runner.kube.UpdateLease(ctx, l, duration)
	k.noteMissing(err)
	if errors.Is(err, kube.ErrNoLease) && k.last.Holder == k.identity {
		// Nobody can hold what does not exist, and once it is made anew, nobody takes it without asking this instance.
		k.runner.licence.renewed(renewal)
	}
	if err != nil {
		return err
	}
	k.doubt.Store(false)
	k.electorate.Is(written.Members)
	k.runner.mu.Lock()
	k.runner.renewed = begun
	k.runner.mu.Unlock()
	if k.written = duration; l.Holder == k.identity {
		k.runner.licence.renewed(renewal)
	}
	k.learn(written)
	return nil
}

// noteMissing has the report tell whether the Lease exists, as far as the answer of a call tells that.
func (k *keeper) noteMissing(err error) {
	missing := errors.Is(err, kube.ErrNoLease)
	if err != nil && !missing {
		return
	}
	r := k.runner
	r.mu.Lock()
	news := r.facts.LeaseMissing != missing
	r.facts.LeaseMissing = missing
	r.mu.Unlock()
	if news {
		r.poke()
	}
}

// annotate adds what the holder knows of its database.
func (k *keeper) annotate(l lease.Lease) lease.Lease {
	r := k.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	if config := r.facts.Config; config != nil {
		l.Members = config.Members
	}
	if data := r.facts.Data; data.Present && !data.Torn && l.SystemID == "" {
		l.SystemID = data.SystemID
	}
	l.Timeline = max(l.Timeline, r.facts.KnownTimeline())
	if l.Failover != nil && l.Failover.Promoted.IsZero() && l.Failover.Term == r.promotedIn {
		promoted := *l.Failover
		promoted.Promoted, l.Failover = r.promotedAt, &promoted
	}
	if r.facts.Server.Accepting && !r.observed.Recovering {
		l.WALLSN = max(l.WALLSN, r.observed.Written)
	}
	return l
}

// learn tells the main loop what the Lease says, if that is news.
func (k *keeper) learn(l lease.Lease) {
	k.runner.mu.Lock()
	l = l.Since(k.runner.memory.SeenTerm)
	k.runner.mu.Unlock()
	news := !k.known || !l.Same(k.last)
	k.runner.view.observe(k.runner.elapsed(), l)
	k.last, k.known = l, true
	if !news {
		return
	}
	r := k.runner
	r.log.Info("Lease changed", "holder", l.Holder, "term", l.Term, "systemID", l.SystemID)
	r.mu.Lock()
	r.memory.Lease, r.memory.SeenTerm = &l, max(r.memory.SeenTerm, l.Term)
	if l.Holder == k.identity && r.facts.Data.Primary() {
		r.led(l.Term)
	}
	r.remember()
	r.mu.Unlock()
	revoked := false
	r.update(func(f *agent.Facts) {
		if l.Holder == "" && (f.Lease.Holder != "" || !f.LeaseKnown) {
			r.freeSince = time.Now()
		}
		f.Lease, f.LeaseKnown = l, true
		if l.Holder == k.identity {
			f.HeldTerm = l.Term
			if l.Term == k.winning {
				f.Elected = l.Term
			}
		}
		revoked = unlicensed(*f)
	})
	if revoked {
		r.licence.revoke()
	}
}
