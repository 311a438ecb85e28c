package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/fence"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
)

const (
	// fenceLead is how long before the end of its licence the agent fences its primary. The sentinel does that somewhat
	// later, if the agent did not.
	fenceLead = 400 * time.Millisecond
	// licenceLook is how often the licence is looked at, also if no timer tells that a suspended machine goes on.
	licenceLook = 500 * time.Millisecond
	// sentinelPatience is how long a primary's start waits for the sentinel.
	sentinelPatience = 5 * time.Second
)

// errUnlicensed tells that the licence ended before a primary was started.
var errUnlicensed = errors.New("the licence to take writes ended; the Lease has to be renewed first")

// licence is until when this incarnation may have PostgreSQL take writes. It tells the sentinel, and the main loop when
// it ends. Who holds its mutex may take the runner's, not the other way round.
type licence struct {
	runner *Runner
	guard  *fence.Guard

	mu    sync.Mutex
	terms election.Licence
	// fenced is how often the sentinel had acted when that was last looked at.
	fenced int64
}

func newLicence(r *Runner) *licence {
	return &licence{runner: r, guard: fence.NewGuard(r.options.Sentinel, r.log)}
}

// renewing is for a write of the Lease that is about to begin; alone tells that nobody else is a member in it.
func (l *licence) renewing(duration time.Duration, alone bool) election.Renewal {
	l.mu.Lock()
	defer l.mu.Unlock()
	renewal := l.terms.Renewing(fence.Now(), duration, alone)
	l.tell()
	return renewal
}

// renewed is for a write that succeeded.
func (l *licence) renewed(renewal election.Renewal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.terms.Renewed(renewal)
	l.tell()
}

// revoke is for a Lease that this incarnation does not hold any more, or gives up.
func (l *licence) revoke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.terms.Revoke()
	l.tell()
}

// run tells when the licence ends, until ctx ends.
func (l *licence) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		l.mu.Lock()
		l.tell()
		left := l.left()
		l.mu.Unlock()
		if left <= 0 {
			left = licenceLook
		}
		timer.Reset(min(left, licenceLook))
	}
}

// left is how long it is until the primary has to be fenced. The caller holds mu.
func (l *licence) left() time.Duration { return l.terms.End() - fenceLead - fence.Now() }

// tell tells the sentinel and the main loop what holds. The caller holds mu.
func (l *licence) tell() {
	l.guard.License(l.terms.End())
	licensed := l.left() > 0
	r := l.runner
	r.mu.Lock()
	news := r.facts.Licensed != licensed
	r.facts.Licensed = licensed
	led := r.facts.Server.Up && !r.facts.Server.Replica
	r.mu.Unlock()
	if !news {
		return
	}
	if !licensed && led {
		r.log.Info("The licence to take writes ends, because the Lease was not renewed in time")
	}
	r.poke()
}

// admit lets a primary start, if there is a licence, and a sentinel that watches it.
func (l *licence) admit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sentinelPatience)
	defer cancel()
	tick := time.NewTicker(polling)
	defer tick.Stop()
	for {
		asleep := l.guard.Awake()
		if asleep == nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return asleep
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left() <= 0 {
		return errUnlicensed // The sentinel must not see a replica whose promotion is refused.
	}
	l.guard.Watch(fence.Starting)
	if l.left() <= 0 {
		l.guard.Watch(fence.Nobody)
		return errUnlicensed // The agent may have been frozen before the sentinel watched.
	}
	return nil
}

// watch has the sentinel watch a postmaster that takes writes, or is about to.
func (l *licence) watch(pid int) { l.guard.Watch(pid) }

// ended is for a postmaster that ended. Its sessions may go on a while, and the sentinel watches until they are gone.
func (l *licence) ended(ctx context.Context, p *pg.Process) {
	if !l.guard.Watching() {
		return
	}
	if fenced := l.guard.Fenced(); fenced != l.fenced {
		l.fenced = fenced
		l.runner.log.Info("The sentinel ended PostgreSQL, because the licence to take writes ended and the agent was late")
	}
	if err := p.Clear(ctx); err != nil {
		l.runner.log.Error(err, "Failed to end what PostgreSQL left")
		return
	}
	l.guard.Watch(fence.Nobody)
}

// alone tells whether nobody else is a member, so that nobody else can take the Lease.
func alone(members []string, self string) bool { return len(members) == 1 && members[0] == self }

// goAlone gives a licence to an instance that cannot ask the API server, but has no other one beside it.
func (k *keeper) goAlone() {
	r := k.runner
	r.mu.Lock()
	config := r.facts.Config
	only := config != nil && alone(config.Members, r.options.Instance)
	r.mu.Unlock()
	if only {
		r.licence.renewed(r.licence.renewing(k.duration(), true))
	}
}

// unlicensed tells whether the licence ends with what was learnt of the Lease: another instance, or a later incarnation
// of this one, holds it. An earlier one has ended; and while nobody holds it, what was licensed stays so.
func unlicensed(f agent.Facts) bool {
	l := f.Lease
	if l.Holder == "" || l.Holder == lease.Identity(f.Self, f.Incarnation) {
		return false
	}
	return l.HeldBy() != f.Self || f.HeldTerm > 0
}
