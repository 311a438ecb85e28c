package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/fence"
	"github.com/acme/pg-operator/instance/lease"
)

// askToHold asks all other members not to replace this instance while it cannot renew the Lease. If all of them agree,
// its licence goes on as if it had.
func (k *keeper) askToHold(ctx context.Context) {
	held, others, duration := k.toHold()
	if len(others) == 0 || !k.runner.licence.valid() {
		return // Who was fenced must not keep others from taking over.
	}
	// An attempt to renew the Lease may wait for the answers no longer than for its own.
	ctx, cancel := context.WithTimeout(ctx, duration/6)
	defer cancel()
	asked := fence.Now()
	request := election.HoldRequest{Holder: held.Holder, Term: held.Term, Duration: duration}
	refusals := make(chan error, len(others))
	for _, other := range others {
		go func() { refusals <- k.askOne(ctx, other, request) }()
	}
	for range others {
		if err := <-refusals; err != nil {
			k.runner.log.Error(err, "Not all members let this instance go on as the primary without the API server")
			return
		}
	}
	k.runner.licence.promised(asked, duration)
	k.runner.log.Info("All other members let this instance go on as the primary without the API server", "members", others)
}

func (k *keeper) askOne(ctx context.Context, other string, request election.HoldRequest) error {
	answer, err := k.runner.peers.Promise(ctx, other, request)
	switch {
	case err != nil:
		return err
	case !answer.Granted:
		return fmt.Errorf("%s refuses: %s", other, answer.Refusal)
	}
	return nil
}

// toHold is the Lease if this incarnation holds it, whom to ask, and for how long.
func (k *keeper) toHold() (held lease.Lease, others []string, duration time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known || k.last.Holder != k.identity {
		return lease.Lease{}, nil, 0
	}
	r := k.runner
	// A write that was not answered may have come into force, or may yet.
	others, duration = append(k.electorate.Others(r.options.Instance), k.last.Members...), k.paceLocked()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts.Stopping {
		return lease.Lease{}, nil, 0
	}
	if r.facts.Config != nil {
		others = append(others, r.facts.Config.Members...)
	}
	slices.Sort(others)
	others = slices.DeleteFunc(slices.Compact(others), func(m string) bool { return m == r.options.Instance })
	return k.last, others, duration
}

// valid tells whether the licence has not ended.
func (l *licence) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left() > 0
}

// promised tells of members all of which promised, when asked, not to replace this instance for a duration.
func (l *licence) promised(asked, duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.terms.Promised(asked, duration)
	l.tell()
}

// renew renews the Lease. A member that promised never to stream from its term again could not follow any more, so that
// the Lease is taken anew then, but not time and again. The caller holds mu.
func (k *keeper) renew(ctx context.Context) error {
	r := k.runner
	l := k.last
	r.mu.Lock()
	promised := int32(0)
	for member, term := range r.promises {
		if slices.Contains(l.Members, member) {
			promised = max(promised, term)
		}
	}
	leads := r.facts.Server.Accepting && !r.facts.Server.Replica
	r.mu.Unlock()
	if !leads || !k.reaffirm.Due(r.elapsed(), l.Term, promised) {
		return k.write(ctx, l)
	}
	taken := l.Taken(k.identity)
	taken.Term = max(taken.Term, promised+1)
	if err := k.write(ctx, taken); err != nil {
		return err
	}
	k.reaffirm.Done(r.elapsed())
	r.log.Info("Took the Lease anew, because a member promised not to follow any more", "term", k.last.Term)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.led(k.last.Term)
	r.remember()
	return nil
}
