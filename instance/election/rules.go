// Package election decides who may become a cluster's primary, and how long the primary may write. It is pure: facts,
// messages and the time go in, verdicts come out. Time is a monotonic duration since any start, the same for all objects
// of one agent; no other machine's clock is ever compared with it.
//
// A Watch is an instance's view of the Lease and of who holds it. A Voter answers candidates and the holder by it. A
// Campaign is one attempt of a candidate. A Licence says how long the holder may write. The simulation in this
// package's tests runs these same objects against faults of every kind.
package election

import (
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// Rules are what the cluster's configuration says about failover.
type Rules struct {
	// LeaseDuration is how long a silent holder keeps the Lease.
	LeaseDuration time.Duration
	// Suspicion is for how long nothing must have been heard from the primary before a quorum may elect another while
	// it still holds the Lease.
	Suspicion time.Duration
	// MaxLag is how much log may be lost, in bytes, where no quorum proves that nothing is.
	MaxLag uint64
	// Enabled: elections are allowed. The clean release of a holder is taken over anyway.
	Enabled bool
	// Members are the wanted instances. They count where the Lease is older than the database and names the wrong ones.
	Members []string
	// Number of standbys that a commit waits for, 0 for asynchronous; Required: it waits as long as it takes.
	Number   int
	Required bool
}

// The bounds of an election's steps.
const (
	// answerWait is how long votes are waited for that are not necessary to win, or that are missing.
	answerWait = 2 * time.Second
	// betterWait is how long a better candidate has for taking the Lease.
	betterWait = 2 * time.Second
	// successorWait is how long the named successor of a clean release has for taking the Lease.
	successorWait = time.Second
	// askAgain is how soon a member is asked again that refused, or did not answer.
	askAgain = 250 * time.Millisecond
)

// SyncWhenTaken is what commits will wait for when self takes l, which is as it was before, after an election. Without
// Required that is nothing, until standbys stream: the quorum is recorded once PostgreSQL has it.
//
// With it, self has every commit that was acknowledged, and so have the former primary and a quorum of before. The new
// quorum counts all of those, not only who streams now: should self fail before anybody has what it has, they find each
// commit among themselves, as long as the number is not larger than theirs. It counts nobody else: a new member without
// data could not vote.
func (r Rules) SyncWhenTaken(self string, l lease.Lease) lease.Sync {
	if !r.Required || r.Number == 0 {
		return lease.Sync{}
	}
	number, standbys := r.Number, l.Members
	if l.Sync.Synchronous() {
		standbys = []string{l.Former()}
		if standbys[0] == "" {
			standbys = slices.Clone(l.Members) // The former primary is one of them.
		}
		for _, q := range l.Sync.InForce {
			number = min(number, q.Number)
			standbys = append(standbys, q.Standbys...)
		}
	}
	standbys = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(standbys))),
		func(member string) bool { return member == self })
	if len(standbys) == 0 {
		return lease.Sync{}
	}
	return lease.Sync{Required: true, InForce: []lease.Quorum{{Number: min(number, len(standbys)), Standbys: standbys}}}
}
