package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

const (
	// settleWait is how long every process of PostgreSQL has for reading its configuration, after the postmaster has.
	settleWait = 3 * time.Second
	// standbysLife is for how long a look at the replicas tells who streams.
	standbysLife = 5 * time.Second
	// syncPause is how long a change that failed waits.
	syncPause = time.Second
)

// errNotHeld tells that this incarnation does not hold the Lease in the term that a change was for.
var errNotHeld = errors.New("the Lease is not held any more")

// synchronizer keeps what commits wait for as it is wanted, in the Lease and in PostgreSQL, while this instance leads.
type synchronizer struct {
	runner   *Runner
	poked    bell
	settling settling
	// damping follows who comes and goes in dampingTerm.
	damping     election.Damping
	dampingTerm int32
}

func newSynchronizer(r *Runner) *synchronizer {
	return &synchronizer{runner: r, poked: newBell()}
}

// poke has the replicas' last look taken into account.
func (s *synchronizer) poke() { s.poked.ring() }

func (s *synchronizer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poked:
		}
		for s.step(ctx) {
			s.runner.poke()
		}
	}
}

// step does the next thing, and tells whether there may be another one.
func (s *synchronizer) step(ctx context.Context) (again bool) {
	r := s.runner
	r.mu.Lock()
	f, term, ready := s.facts(time.Now())
	r.mu.Unlock()
	if !ready {
		return false
	}
	step := election.NextSync(f)
	switch {
	case step.Record != nil:
		if err := r.keeper.Record(ctx, term, *step.Record); err != nil {
			r.log.Error(err, "Failed to note in the Lease what commits wait for")
			time.AfterFunc(syncPause, s.poke)
			return false
		}
		return true
	case step.Apply != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.facts.Lease.Term == term {
			r.quorum = *step.Apply
			r.log.Info("Changes what commits wait for", "quorum", standbyNames(r.quorum))
			r.poke()
		}
	}
	return false
}

// facts are what the next step depends on; none is taken before the last one is done. The caller holds the runner's mu.
func (s *synchronizer) facts(now time.Time) (f election.SyncFacts, term int32, ready bool) {
	r := s.runner
	facts, seen := r.facts, r.standbys
	if facts.Config == nil || facts.Lease.Holder != r.keeper.identity || r.quorumTerm != facts.Lease.Term ||
		!facts.Server.Accepting || facts.Server.Replica || facts.Server.Recovering || now.Sub(seen.at) > standbysLife ||
		r.settings.applied.synchronous != standbyNames(r.quorum) {
		return f, 0, false
	}
	f = election.SyncFacts{
		Wanted: durability(facts.Config), Others: r.others(), Record: facts.Lease.Sync, Applied: r.quorum,
		Doubt: r.keeper.doubtful(),
	}
	for _, standby := range seen.all {
		if standby.Streaming && slices.Contains(f.Others, standby.Instance) && !slices.Contains(f.Streaming, standby.Instance) {
			f.Streaming = append(f.Streaming, standby.Instance)
		}
	}
	if s.dampingTerm != facts.Lease.Term {
		s.damping, s.dampingTerm = election.Damping{}, facts.Lease.Term
	}
	f.Damped = s.damping.Look(seen.at.Sub(r.begun), f.Streaming)
	f.Settled = s.settling.look(facts.Lease.Term, r.quorum, seen, r.renewed)
	return f, facts.Lease.Term, true
}

// settling follows how a quorum takes effect.
type settling struct {
	term   int32
	quorum lease.Quorum
	// since is when PostgreSQL was first seen with it.
	since time.Time
	// confirmed is the look at which every process worked with it; zero before.
	confirmed time.Time
	// written is what was written at the first look after that, 0 before: what was acknowledged by another quorum ends
	// before it.
	written postgres.LSN
}

// look tells whether every process of PostgreSQL works with a quorum, and enough of its standbys have all that was
// acknowledged before. renewed is when the last renewal of the Lease that succeeded was begun.
func (s *settling) look(term int32, quorum lease.Quorum, seen standbys, renewed time.Time) bool {
	if s.term != term || !s.quorum.Equal(quorum) || s.since.IsZero() {
		*s = settling{term: term, quorum: quorum, since: seen.at}
	}
	if s.confirmed.IsZero() {
		if seen.at.Sub(s.since) >= settleWait && seen.obeys(quorum) {
			s.confirmed = seen.at
		}
		return false
	}
	if s.written == 0 && seen.at.After(s.confirmed) {
		s.written = seen.written
	}
	flushed := 0
	for _, standby := range seen.all {
		if standby.Counted && slices.Contains(quorum.Standbys, standby.Instance) && standby.Flushed >= s.written {
			flushed++
		}
	}
	return s.written > 0 && flushed >= quorum.Number && renewed.After(s.confirmed)
}

// obeys tells whether the processes that acknowledge commits go by a quorum.
func (s standbys) obeys(quorum lease.Quorum) bool {
	return s.idle && !slices.ContainsFunc(s.all, func(standby pg.Standby) bool {
		return standby.Streaming && standby.Counted != slices.Contains(quorum.Standbys, standby.Instance)
	})
}

// refreshQuorum sets by what quorum PostgreSQL begins a term as the primary. A replica has the one that it would get
// from an election: where it is set all along no commit slips through at a promotion. The caller holds mu.
func (r *Runner) refreshQuorum() {
	l, wanted := r.facts.Lease, durability(r.facts.Config)
	if l.Holder != r.keeper.identity {
		r.quorum, r.quorumTerm = lease.Quorum{}, 0
		if taken := rules(r.facts.Config).SyncWhenTaken(r.options.Instance, l); taken.Synchronous() {
			r.quorum = taken.InForce[0]
		}
		return
	}
	if r.quorumTerm == l.Term {
		return
	}
	if r.quorumTerm == 0 || !r.facts.Server.Up || r.facts.Server.Replica {
		r.quorum = election.SyncAtStart(l.Sync, wanted, r.others())
	}
	r.quorumTerm = l.Term
}

// founded is a Lease that this instance takes, with what commits will wait for in a database that it is about to make:
// none was acknowledged before.
func (r *Runner) founded(l lease.Lease) lease.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.facts
	if f.Config != nil && f.Data.Known && !f.Data.Present && f.ExpectedSystemID() == "" {
		l.Members = f.Config.Members
		l.Sync = rules(f.Config).SyncWhenTaken(r.options.Instance, l)
	}
	return l
}

// others are all members but this one. The caller holds mu.
func (r *Runner) others() []string {
	return slices.DeleteFunc(slices.Clone(r.facts.Config.Members), func(m string) bool { return m == r.options.Instance })
}

// durability is what the configuration wants of commits.
func durability(c *contract.Config) election.Durability {
	if c.Synchronous == nil {
		return election.Durability{}
	}
	return election.Durability{Number: int(c.Synchronous.Number), Required: c.Synchronous.Required}
}

// standbyNames is a quorum as PostgreSQL's synchronous_standby_names; empty if commits wait for nobody.
func standbyNames(q lease.Quorum) string {
	if len(q.Standbys) == 0 {
		return ""
	}
	return fmt.Sprintf(`ANY %d ("%s")`, q.Number, strings.Join(slices.Sorted(slices.Values(q.Standbys)), `","`))
}

// synchronous is what commits wait for by a primary's settings in force, nil if for nobody. The caller holds mu.
func (r *Runner) synchronous() *contract.Quorum {
	names := r.settings.applied.synchronous
	if r.facts.Server.Replica || names == "" || names != standbyNames(r.quorum) {
		return nil
	}
	return &contract.Quorum{Number: int32(r.quorum.Number), Standbys: slices.Sorted(slices.Values(r.quorum.Standbys))}
}

// Record writes what commits wait for into the Lease, while this incarnation holds it in a term.
func (k *keeper) Record(ctx context.Context, term int32, record lease.Sync) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.record(ctx, term, record)
	if errors.Is(err, kube.ErrConflict) {
		if err = k.read(ctx); err == nil {
			err = k.record(ctx, term, record)
		}
	}
	return err
}

func (k *keeper) record(ctx context.Context, term int32, record lease.Sync) error {
	if !k.known || k.last.Holder != k.identity || k.last.Term != term {
		return errNotHeld
	}
	l := k.last
	l.Sync = record
	// Until another write succeeds, one that failed may still come into force.
	k.doubt.Store(true)
	return k.write(ctx, l)
}

// doubtful tells whether the Lease may say something else about what commits wait for than was last read.
func (k *keeper) doubtful() bool { return k.doubt.Load() }
