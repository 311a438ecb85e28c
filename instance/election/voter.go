package election

import (
	"fmt"
	"time"
)

// Standing is what a voter is, as its agent knows it now.
type Standing struct {
	// SystemID of the data, empty without any.
	SystemID string
	// Complete: the data is all there, and how far it goes is known.
	Complete bool
	// Leading: its database takes writes, or is about to.
	Leading bool
}

// Voter decides on requests of candidates and of the holder. All calls come from one goroutine at a time.
type Voter struct {
	watch    *Watch
	promised int32
}

// NewVoter is a voter that sees what watch sees. promised is what its disk says.
func NewVoter(watch *Watch, promised int32) *Voter { return &Voter{watch: watch, promised: promised} }

// Promised is the newest term that the voter never streams from again.
func (v *Voter) Promised() int32 { return v.promised }

// MayFollow tells whether the voter may stream from the holder of term.
func (v *Voter) MayFollow(term int32) bool { return term > v.promised }

// Consider decides on a request. When it grants one that is no probe, it counts as promised from now on: the caller
// writes Promised to its disk, then detaches, then answers. A candidate's own vote takes the same way. The same request
// may come again, late or twice.
func (v *Voter) Consider(now time.Duration, r VoteRequest, s Standing) (grant bool, refusal string) {
	if refusal = v.objection(now, r, s); refusal != "" {
		return false, refusal
	}
	if !r.Probe {
		v.promised = max(v.promised, r.Term)
		v.watch.known = max(v.watch.known, r.Term)
	}
	return true, ""
}

func (v *Voter) objection(now time.Duration, r VoteRequest, s Standing) string {
	w := v.watch
	switch {
	case s.SystemID == "" || !s.Complete:
		return "has no complete data"
	case r.SystemID != s.SystemID:
		return fmt.Sprintf("has the database %s, not %s", s.SystemID, r.SystemID)
	case s.Leading:
		return "leads itself"
	case r.Term < w.lease.Term:
		return fmt.Sprintf("term %d is over", r.Term)
	case w.Holding(now):
		return "promised the holder to elect nobody"
	case !r.Free && w.Hears(now):
		return "still hears the primary"
	}
	return ""
}

// Hold decides on a holder's request not to be replaced while it cannot renew the Lease. A promise needs no disk: who
// restarts counts the Lease's duration anew.
func (v *Voter) Hold(now time.Duration, r HoldRequest) HoldAnswer {
	w := v.watch
	answer := HoldAnswer{Promised: v.promised}
	switch {
	case r.Duration <= 0:
		answer.Refusal = "no duration was asked for"
	case r.Term <= v.promised:
		answer.Refusal = fmt.Sprintf("promised never to stream from term %d again", v.promised)
	case r.Term < w.known:
		answer.Refusal = fmt.Sprintf("term %d is over", r.Term)
	case w.seen && w.lease.Term == r.Term && w.lease.Holder != r.Holder:
		answer.Refusal = "the Lease does not say that it is the holder"
	default:
		w.HoldPromised(now, r.Duration, r.Holder, r.Term)
		answer.Granted = true
	}
	return answer
}
