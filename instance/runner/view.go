package runner

import (
	"sync"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/lease"
)

// view is what the instance knows of the Lease and of its holder, to elect by. Its zero value knows nothing yet.
type view struct {
	mu sync.Mutex
	// watch and voter exist from when the volume was found; rules, lease and at are what was learned before.
	watch *election.Watch
	voter *election.Voter
	rules election.Rules
	lease lease.Lease
	seen  bool
	at    time.Duration
}

// elapsed is the time of everything in package election, on this agent's clock.
func (r *Runner) elapsed() time.Duration { return time.Since(r.begun) }

// recall begins with what the disk says.
func (v *view) recall(self string, m memory) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch = election.NewWatch(self, v.rules, max(m.SeenTerm, m.Promised))
	v.voter = election.NewVoter(v.watch, m.Promised)
	if v.seen {
		v.watch.Observe(v.at, v.lease)
	}
}

// follow takes the rules of a configuration over.
func (v *view) follow(config *contract.Config) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rules = rules(config)
	if v.watch != nil {
		v.watch.SetRules(v.rules)
	}
}

// rules of failover in a configuration.
func rules(c *contract.Config) election.Rules {
	rules := election.Rules{
		LeaseDuration: time.Duration(c.LeaseDurationSeconds) * time.Second,
		Suspicion:     time.Duration(c.SuspicionMillis) * time.Millisecond, MaxLag: uint64(max(c.MaxLagBytes, 0)),
		Enabled: c.FailoverEnabled, Members: c.Members,
	}
	if c.Synchronous != nil {
		rules.Number, rules.Required = int(c.Synchronous.Number), c.Synchronous.Required
	}
	return rules
}

// observe tells what the API server said of the Lease.
func (v *view) observe(now time.Duration, l lease.Lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lease, v.seen, v.at = l, true, now
	if v.watch != nil {
		v.watch.Observe(now, l)
	}
}

// awake tells that the loop that listens to the primary goes on.
func (v *view) awake(now time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watch != nil {
		v.watch.Awake(now)
	}
}

// heardPrimary tells of a sign of life of the primary's PostgreSQL.
func (r *Runner) heardPrimary() {
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	if r.view.watch != nil {
		r.view.watch.Heard(r.elapsed())
	}
}

// consider has the voter answer a candidate.
func (v *view) consider(now time.Duration, q election.VoteRequest, s election.Standing) (promised int32, refusal string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.voter == nil {
		return 0, "looks at its volume"
	}
	_, refusal = v.voter.Consider(now, q, s)
	return v.voter.Promised(), refusal
}

// hold has the voter answer a holder.
func (v *view) hold(now time.Duration, q election.HoldRequest) election.HoldAnswer {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.voter == nil {
		return election.HoldAnswer{Refusal: "looks at its volume"}
	}
	return v.voter.Hold(now, q)
}
