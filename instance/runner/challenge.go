package runner

import (
	"context"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/election"
)

// challenge tells whether the holder of the Lease may be challenged now.
func (v *view) challenge(now time.Duration) agent.Challenge {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watch == nil {
		return agent.Challenge{}
	}
	if free, why := v.watch.Free(now); free {
		return agent.Challenge{Due: true, Free: true, Reason: why}
	}
	suspects, why := v.watch.Suspects(now)
	return agent.Challenge{Due: suspects, Reason: why, Silent: v.watch.Silent(now)}
}

// told is for a term that another member told of.
func (v *view) told(term int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watch != nil {
		v.watch.Told(term)
	}
}

// current are the rules in force.
func (v *view) current() election.Rules {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.rules
}

// provenDead notes that an incarnation has ended.
func (v *view) provenDead(holder string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watch != nil {
		v.watch.ProvenDead(holder)
	}
}

// inquire asks whether the holder has ended, for a replica that does not hear from it: then nobody has to wait for its
// time to end. The caller holds mu.
func (k *keeper) inquire(ctx context.Context) {
	r, holder := k.runner, k.last.Holder
	r.mu.Lock()
	f := r.facts
	lonely := f.Config != nil && f.Config.FailoverEnabled && f.Server.Up && f.Server.Replica && !f.Server.Streaming
	r.mu.Unlock()
	if !lonely || holder == "" || k.last.HeldBy() == r.options.Instance {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.paceLocked()/6)
	defer cancel()
	ended, err := r.kube.Ended(ctx, holder)
	if err != nil && ctx.Err() == nil {
		r.log.Error(err, "Failed to ask whether the primary has ended", "holder", holder)
	}
	if err != nil || !ended {
		return
	}
	r.view.provenDead(holder)
	r.update(func(*agent.Facts) { r.dead = holder })
}

// challengeAt is when the answer of challenge may change by time alone.
func (v *view) challengeAt() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watch == nil {
		return 0
	}
	return min(v.watch.FreeAt(), v.watch.SuspectsAt())
}

// Bounds of how long nobody looks whether the holder may be challenged.
const (
	challengeSoon = 20 * time.Millisecond
	challengeLate = 250 * time.Millisecond
)

// watchHolder has the Lease read, and the main loop look, as soon as the holder may be challenged, until ctx ends.
func (r *Runner) watchHolder(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := r.elapsed()
		challenge := r.view.challenge(now)
		if challenge.Due && !due {
			r.keeper.poke()
			r.poke()
		}
		due = challenge.Due
		timer.Reset(min(max(r.view.challengeAt()-now, challengeSoon), challengeLate))
	}
}

// followsHolder tells whether a replica was told to follow the instance that holds the Lease.
func (r *Runner) followsHolder() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.settings.detached && r.facts.Lease.Holder != "" && r.facts.Lease.HeldBy() == r.settings.applied.upstream.Instance
}
