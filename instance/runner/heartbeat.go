package runner

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
)

const (
	// listenInterval is how often the primary's agent is asked how it does, unless suspicion arises sooner.
	listenInterval = 300 * time.Millisecond
	// warmInterval is how often the other members are, for their addresses and connections to be known when a vote is
	// needed and perhaps no name is resolved.
	warmInterval = 10 * time.Second
	// healthyFor is how long a look at PostgreSQL is believed; while it runs well it is looked at every second.
	healthyFor = 3 * time.Second
	// hintInterval is how often at most the Lease is looked at because peers say so.
	hintInterval = 50 * time.Millisecond
)

// listenToPrimary notes signs of life of the primary until ctx ends. A question that is not answered holds nothing up.
func (r *Runner) listenToPrimary(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asking atomic.Bool
	var warmed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		r.view.awake(r.elapsed())
		primary, others, interval := r.audience()
		timer.Reset(interval)
		if primary != "" && asking.CompareAndSwap(false, true) {
			go func() {
				defer asking.Store(false)
				r.listen(ctx, primary)
			}()
		}
		if time.Since(warmed) < warmInterval {
			continue
		}
		warmed = time.Now()
		for _, other := range others {
			go r.greet(ctx, other)
		}
	}
}

// audience is whom to ask: the primary, if it is another instance, and the other members. Only where one may replace
// another is anybody asked, or where a primary has to learn that this instance promised not to follow it: that outlives a
// change of the configuration, and only the primary's next term lets the instance stream again.
func (r *Runner) audience() (primary string, others []string, interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config, holder := r.facts.Config, r.facts.Lease.HeldBy()
	promised := r.memory.Promised > 0 && r.memory.Promised >= r.facts.Lease.Term
	if config == nil || len(config.Members) < 2 || !config.FailoverEnabled && !promised {
		return "", nil, listenInterval
	}
	for _, member := range config.Members {
		switch member {
		case r.options.Instance:
		case holder:
			primary = member
		default:
			others = append(others, member)
		}
	}
	suspicion := time.Duration(config.SuspicionMillis) * time.Millisecond
	return primary, others, max(min(listenInterval, suspicion/5), listenInterval/6)
}

// listen asks the primary once.
func (r *Runner) listen(ctx context.Context, primary string) {
	beat, err := r.peers.Heartbeat(ctx, primary, r.options.Instance, r.promised())
	if err != nil {
		return // It is silent, which is what matters.
	}
	r.mu.Lock()
	l := r.facts.Lease
	if beat.Leading && beat.Term == l.Term && l.HeldBy() == primary {
		r.primaryKeeps(beat.Kept)
	}
	r.mu.Unlock()
	switch {
	case beat.Term > l.Term:
		r.keeper.poke()
	case beat.Leading && beat.Healthy && beat.Term == l.Term && l.HeldBy() == primary:
		r.heardPrimary()
	}
}

// greet keeps in touch with a member that is not the primary.
func (r *Runner) greet(ctx context.Context, other string) {
	_, err := r.peers.Heartbeat(ctx, other, r.options.Instance, r.promised())
	if err != nil && ctx.Err() == nil {
		r.log.V(1).Info("A member does not answer", "member", other, "reason", err.Error())
	}
}

func (r *Runner) promised() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory.Promised
}

// Heartbeat tells another member how this one does, and notes what that one promised.
func (r *Runner) Heartbeat(from string, promised int32) contract.Heartbeat {
	r.notePromise(from, promised)
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.facts
	leads := f.Lease.Holder == lease.Identity(r.options.Instance, r.options.Incarnation) &&
		f.Server.Up && !f.Server.Replica && f.Server.Accepting && !f.Server.Recovering
	beat := contract.Heartbeat{
		Instance: r.options.Instance, Term: f.Lease.Term, Leading: leads,
		Healthy: f.Server.Accepting && time.Since(r.answered) < healthyFor,
	}
	if leads {
		beat.Kept = r.keeps()
	}
	return beat
}

// notePromise notes the last term from which a member promised never to stream again. A holder that learns of its own
// has to do something about it.
func (r *Runner) notePromise(member string, promised int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts.Config == nil || !slices.Contains(r.facts.Config.Members, member) || promised <= r.promises[member] {
		return
	}
	r.promises[member] = promised
	if promised >= r.facts.Lease.Term {
		r.keeper.poke()
		r.poke()
	}
}

// Hint looks at the Lease now, because a peer says that it is worth it.
func (r *Runner) Hint(_ context.Context, hint contract.Hint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hint.Term < r.facts.Lease.Term || r.hinting {
		return
	}
	r.hinting = true
	time.AfterFunc(max(hintInterval-time.Since(r.hinted), 0), func() {
		r.mu.Lock()
		r.hinting, r.hinted = false, time.Now()
		r.mu.Unlock()
		r.keeper.poke()
	})
}
