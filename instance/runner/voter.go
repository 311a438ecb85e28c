package runner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
)

const (
	// detachTimeout is how long a vote may take to be sure of what PostgreSQL has.
	detachTimeout = time.Second
	// lagging is how much received log, in bytes, makes a candidate worse than others that have as much: to replay it
	// takes about a second.
	lagging = 64 << 20
)

// Vote answers a candidate, which may be the instance itself. What it promises is on disk, and PostgreSQL receives
// nothing any more, before the vote is granted. Candidates are answered one after the other.
func (r *Runner) Vote(ctx context.Context, q election.VoteRequest) election.Vote {
	ctx, cancel := context.WithTimeout(ctx, 2*detachTimeout)
	defer cancel()
	select {
	case r.voting <- struct{}{}:
		defer func() { <-r.voting }()
	case <-ctx.Done():
		return election.Vote{Instance: r.options.Instance, Refusal: "answers another candidate"}
	}
	vote, err := r.cast(ctx, q)
	if err != nil {
		vote.Refusal = err.Error()
	}
	vote.Granted = err == nil
	r.log.Info("Answered a candidate", "candidate", q.Candidate, "term", q.Term, "free", q.Free, "probe", q.Probe,
		"granted", vote.Granted, "refusal", vote.Refusal, "timeline", vote.Timeline, "received", vote.Received.String())
	return vote
}

// cast returns the vote, and why it is not granted.
func (r *Runner) cast(ctx context.Context, q election.VoteRequest) (election.Vote, error) {
	if !r.isMember(q.Candidate) {
		return election.Vote{Instance: r.options.Instance}, errors.New(q.Candidate + " is no member of this cluster")
	}
	vote, leading, process, problem := r.ballot()
	if problem == nil && !leading {
		var log pg.Log
		log, problem = r.ends(ctx, process)
		note(&vote, log)
	}
	vote.Complete = problem == nil
	promised, refusal := r.view.consider(r.elapsed(), q, election.Standing{
		SystemID: vote.SystemID, Complete: vote.Complete, Leading: leading,
	})
	switch {
	case problem != nil:
		return vote, problem
	case refusal != "":
		return vote, errors.New(refusal)
	case q.Probe:
		return vote, nil
	}
	vote.Promised = promised
	saved := r.promise(promised)
	log, err := r.detach(ctx, process)
	if err = errors.Join(<-saved, err); err != nil {
		return vote, err
	}
	note(&vote, log)
	vote.Detached = true
	return vote, nil
}

// ballot is what a vote says without asking PostgreSQL. problem is why it can say no more.
func (r *Runner) ballot() (vote election.Vote, leading bool, process *pg.Process, problem error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.facts
	vote = election.Vote{
		Instance: r.options.Instance, Incarnation: r.options.Incarnation, SystemID: f.Data.SystemID, Promised: r.memory.Promised,
		SeenTerm: r.memory.SeenTerm,
	}
	if f.Data.Primary() {
		// Data that is older than what keeps the term was led in the first one at least.
		vote.LedTerm = max(r.memory.LedTerm, 1)
	}
	leading = f.Lease.Holder == lease.Identity(r.options.Instance, r.options.Incarnation) || f.Server.Up && !f.Server.Replica
	switch {
	case !r.locked || !f.Data.Known:
		problem = errors.New("it does not know its volume yet")
	case !f.Data.Present:
		problem = errors.New("its volume is empty")
	case f.Data.Torn:
		problem = errors.New("the data on its volume is not complete")
	case r.process == nil && vote.LedTerm > f.Lease.Term:
		// The Lease was made anew, and does not tell whose data is the newest.
	case r.process == nil:
		problem = errors.New("its PostgreSQL does not run")
	case r.process != nil && !f.Server.Accepting:
		problem = errors.New("its PostgreSQL does not take connections")
	}
	return vote, leading, r.process, problem
}

// ends is how far the log goes. That of a stopped primary goes at least as far as its control file says.
func (r *Runner) ends(ctx context.Context, process *pg.Process) (pg.Log, error) {
	if process != nil {
		return process.Log(ctx)
	}
	control, err := r.options.Volume.ControlData(ctx, r.programs)
	return pg.Log{Timeline: control.LastTimeline(), Received: control.Checkpoint, Replayed: control.Checkpoint}, err
}

// note has a vote say how far the log goes.
func note(vote *election.Vote, log pg.Log) {
	vote.Timeline, vote.Received = log.Timeline, log.Received
	vote.Lagging = log.Received.BytesAfter(log.Replayed) > lagging
}

// isMember tells whether an instance belongs to the cluster, as the operator or the Lease says.
func (r *Runner) isMember(instance string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.facts.Lease.Members, instance) ||
		r.facts.Config != nil && slices.Contains(r.facts.Config.Members, instance)
}

// promise promises from now on, and tells when no later agent on this volume can forget that any more.
func (r *Runner) promise(term int32) (saved <-chan error) {
	r.mu.Lock()
	r.memory.Promised = max(r.memory.Promised, term)
	r.facts.Promised = r.memory.Promised
	held := r.locked
	r.mu.Unlock()
	r.poke()
	done := make(chan error, 1)
	if !held {
		done <- errors.New("the volume is not its own any more")
		return done
	}
	go func() { done <- r.saveMemory() }()
	return done
}

// detach has PostgreSQL receive nothing from anybody any more, and tells where its log ends then.
func (r *Runner) detach(ctx context.Context, process *pg.Process) (pg.Log, error) {
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	if process == nil {
		return r.ends(ctx, nil)
	}
	r.mu.Lock()
	upstream := r.settings.applied.upstream
	r.mu.Unlock()
	detached, err := r.override(upstream)
	if err != nil {
		return pg.Log{}, err
	}
	if !detached {
		return pg.Log{}, errors.New("another term has begun meanwhile")
	}
	return process.Detached(ctx)
}

// override writes what PostgreSQL reads last: that it follows nobody, while it must not follow the given upstream. It is
// decided and written in one step, so that nothing older overwrites it.
func (r *Runner) override(upstream agent.Endpoint) (detached bool, err error) {
	r.overriding.Lock()
	defer r.overriding.Unlock()
	r.mu.Lock()
	detached = r.detachedFrom(upstream)
	r.mu.Unlock()
	if err = r.server().Override(detached); err != nil {
		return detached, err
	}
	r.mu.Lock()
	r.settings.detached = detached
	r.mu.Unlock()
	return detached, nil
}

// detachedFrom tells whether PostgreSQL must not receive from an upstream, or whatever its other files name: only the
// holder of a Lease whose term is newer than what was promised is followed. The caller holds mu.
func (r *Runner) detachedFrom(upstream agent.Endpoint) bool {
	l, promised := r.facts.Lease, r.memory.Promised
	return promised > 0 && l.Term <= promised || upstream.Instance != "" && l.HeldBy() != upstream.Instance
}

// Promise answers a holder that cannot renew the Lease, and asks not to be replaced for a while.
func (r *Runner) Promise(_ context.Context, q election.HoldRequest) election.HoldAnswer {
	answer := election.HoldAnswer{Refusal: lease.Instance(q.Holder) + " is no member of this cluster"}
	if r.isMember(lease.Instance(q.Holder)) {
		answer = r.view.hold(r.elapsed(), q)
	}
	answer.Instance = r.options.Instance
	r.log.Info("Answered the holder of the Lease", "holder", q.Holder, "term", q.Term, "granted", answer.Granted, "refusal", answer.Refusal)
	return answer
}
