package election

import (
	"fmt"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// Watch is an instance's view of the Lease and of its holder.
type Watch struct {
	self  string
	rules Rules

	lease lease.Lease
	seen  bool
	// since is when lease was first read as it is, holderSince when it first had its holder.
	since, holderSince time.Duration
	// known is the newest term that was ever seen, durably.
	known int32
	// longest is the longest duration that a Lease had.
	longest time.Duration
	// heard is when the holder was last heard of, if it ever was.
	heard      time.Duration
	heardEver  bool
	awake      time.Duration
	holdTerm   int32
	holdUntil  time.Duration
	holdFor    string
	provenDead string
}

// NewWatch is the view of self before it read the Lease. known is the newest term that it knows of from its disk.
func NewWatch(self string, rules Rules, known int32) *Watch {
	return &Watch{self: self, rules: rules, known: known}
}

// SetRules has changed rules in force.
func (w *Watch) SetRules(rules Rules) { w.rules = rules }

// Observe tells what the API server said; now is when its answer came.
func (w *Watch) Observe(now time.Duration, l lease.Lease) {
	if w.seen && l.Version == w.lease.Version {
		return
	}
	if !w.seen || l.Holder != w.lease.Holder {
		w.heardEver, w.holderSince = false, now
	}
	w.lease, w.seen, w.since = l, true, now
	w.known = max(w.known, l.Term)
	w.longest = max(w.longest, l.Duration)
}

// Lease as last observed; false before the first time.
func (w *Watch) Lease() (lease.Lease, bool) { return w.lease, w.seen }

// Known is the newest term ever seen; the caller keeps it on disk.
func (w *Watch) Known() int32 { return w.known }

// Told tells of a term that another member knows of.
func (w *Watch) Told(term int32) { w.known = max(w.known, term) }

// Heard tells of a sign of life of the holder's PostgreSQL in the observed term: a heartbeat's answer that calls it
// healthy, or a message to the WAL receiver.
func (w *Watch) Heard(now time.Duration) { w.heard, w.heardEver = max(w.heard, now), true }

// Awake is called often, at least every quarter of Rules.Suspicion, by the loop that also learns of signs of life: a
// time in which it was not, because the agent was frozen, does not count as silence of the holder.
func (w *Watch) Awake(now time.Duration) {
	if gap := now - w.awake; w.awake > 0 && gap > w.rules.Suspicion/2 {
		w.heard += gap
	}
	w.awake = now
}

// ProvenDead tells that no process of the incarnation runs any more: the kubelet said so of its container, or a later
// incarnation has its volume.
func (w *Watch) ProvenDead(identity string) { w.provenDead = identity }

// HoldPromised notes the promise to the holder of term not to stand and not to vote until d from now.
func (w *Watch) HoldPromised(now, d time.Duration, holder string, term int32) {
	w.holdTerm, w.holdUntil, w.holdFor = term, max(w.holdUntil, now+d), holder
}

// Holding tells whether such a promise is in force. It ends early only when that holder gave the Lease up, or another
// term began.
func (w *Watch) Holding(now time.Duration) bool {
	return now < w.holdUntil && w.lease.Term <= w.holdTerm && w.lease.ReleasedBy != w.holdFor
}

// Older tells whether the observed Lease is older than the database: it was made anew, or restored. Its holder, and
// what it says of members and commits, mean nothing.
func (w *Watch) Older() bool { return w.lease.Term < w.known || w.lease.SystemID == "" }

// Free tells whether the Lease may be taken as far as its holder is concerned, or why not.
func (w *Watch) Free(now time.Duration) (free bool, why string) {
	l := w.lease
	switch {
	case !w.seen:
		return false, "the Lease could not be read yet"
	case l.Problem != "":
		return false, l.Problem
	case w.Holding(now):
		return false, "promised " + lease.Instance(w.holdFor) + ", which cannot reach the API server, not to take over"
	case l.Holder == "" && l.ReleasedBy != "" && !w.Older():
		return true, lease.Instance(l.ReleasedBy) + " released the Lease"
	case l.Holder != "" && l.Holder == w.provenDead && !w.Older():
		return true, l.HeldBy() + " was proven dead"
	case now-w.since >= w.duration():
		return true, fmt.Sprintf("%s did not renew the Lease for %s", w.holder(), w.duration())
	default:
		return false, w.holder() + " holds the Lease"
	}
}

// FreeAt is when Free may change by time alone.
func (w *Watch) FreeAt() time.Duration { return max(w.since+w.duration(), w.holdUntil) }

// holder for messages.
func (w *Watch) holder() string {
	if w.lease.Holder == "" {
		return "whoever was cleared as the holder"
	}
	return w.lease.HeldBy()
}

// duration that the Lease has to be unchanged. One that was made anew tells of none: the holder may still go by that
// of the former one.
func (w *Watch) duration() time.Duration {
	if w.lease.Duration == 0 || w.Older() {
		return max(w.rules.LeaseDuration, w.longest)
	}
	return w.lease.Duration
}

// Hears tells whether the holder was heard of recently enough not to be suspected.
func (w *Watch) Hears(now time.Duration) bool { return w.heardEver && now-w.heard < w.rules.Suspicion }

// Silent tells whether nothing was heard of the holder for twice as long as it takes to suspect it: one that just took
// the Lease, or whose heartbeat was lost, is heard by then.
func (w *Watch) Silent(now time.Duration) bool {
	last := w.holderSince
	if w.heardEver {
		last = max(last, w.heard)
	}
	return w.seen && w.lease.Holder != "" && w.lease.HeldBy() != w.self && now-last >= 2*w.rules.Suspicion
}

// Suspects tells whether a quorum may be asked to elect another instance although the Lease is not free, or why not.
func (w *Watch) Suspects(now time.Duration) (suspects bool, why string) {
	l := w.lease
	switch {
	case !w.seen || l.Problem != "" || l.Holder == "" || l.HeldBy() == w.self || w.Older():
		return false, "there is no holder to suspect"
	case !l.Sync.Required || !l.Sync.Names(w.self):
		return false, "no quorum that counts " + w.self + " is required"
	case w.Holding(now):
		return false, "promised " + lease.Instance(w.holdFor) + ", which cannot reach the API server, not to take over"
	case !w.heardEver:
		return false, l.HeldBy() + " was not heard of in this term yet"
	case w.Hears(now):
		return false, l.HeldBy() + " is heard of"
	default:
		return true, fmt.Sprintf("nothing was heard of %s for %s", l.HeldBy(), w.rules.Suspicion)
	}
}

// SuspectsAt is when Suspects may change by time alone.
func (w *Watch) SuspectsAt() time.Duration { return max(w.heard+w.rules.Suspicion, w.holdUntil) }
