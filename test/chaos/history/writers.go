package history

import (
	"fmt"
	"slices"
	"time"
)

// Ack is an acknowledged write. What was acknowledged at End was asked for at Begin.
type Ack struct {
	// Server and Timeline that acknowledged: a server's reign.
	Server     string
	Timeline   uint32
	Begin, End time.Duration
}

// reign is a server on a timeline. One that comes back as the primary after another was it has a later timeline.
type reign struct {
	server   string
	timeline uint32
}

func (a Ack) reign() reign { return reign{a.Server, a.Timeline} }

// TwoWriters is how long a reign went on to acknowledge writes that were asked for after a later one had begun to; 0
// means that no two instances were seen to be writable at a time.
func TwoWriters(acks []Ack) time.Duration {
	first := firstAcks(acks)
	longest := time.Duration(0)
	for _, a := range acks {
		for other, at := range first {
			if other != a.reign() && first[a.reign()] <= at && at < a.Begin {
				longest = max(longest, a.End-at)
			}
		}
	}
	return longest
}

// firstAcks is when each reign had its first write acknowledged.
func firstAcks(acks []Ack) map[reign]time.Duration {
	first := map[reign]time.Duration{}
	for _, a := range acks {
		if at, known := first[a.reign()]; !known || a.End < at {
			first[a.reign()] = a.End
		}
	}
	return first
}

func timelines(acks []Ack) []uint32 {
	var found []uint32
	for r := range firstAcks(acks) {
		found = append(found, r.timeline)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Acks are the acknowledged writes among operations.
func Acks(operations []Operation) []Ack {
	var acks []Ack
	for _, o := range operations {
		if o.Outcome == Acknowledged && o.Writes() {
			acks = append(acks, Ack{Server: o.Server, Timeline: o.Timeline, Begin: o.Begin, End: o.End})
		}
	}
	return acks
}

// Outage is the longest time without an acknowledged write that ended after since: from the last one before to the
// next one, at ended. Without a next one it ends at until.
func Outage(operations []Operation, since, until time.Duration) (longest, ended time.Duration) {
	var ends []time.Duration
	for _, o := range operations {
		if o.Writes() && o.Outcome == Acknowledged && o.End <= until {
			ends = append(ends, o.End)
		}
	}
	slices.Sort(ends)
	ends = append(ends, until)
	last := time.Duration(0)
	for _, end := range ends {
		if end > since && end-last > longest {
			longest, ended = end-last, end
		}
		last = end
	}
	return longest, ended
}

// Holder is who held a cluster's Lease, as somebody saw it.
type Holder struct {
	Identity string
	Term     int32
}

// Terms counts the terms of holders.
func Terms(holders []Holder) int {
	terms := map[int32]bool{}
	for _, h := range holders {
		if h.Identity != "" {
			terms[h.Term] = true
		}
	}
	return len(terms)
}

// TermErrors says where terms did not rise: another holder without a higher term, or a lower one. A Lease that nobody
// holds may keep its term.
func TermErrors(holders []Holder) []string {
	var found []string
	last := Holder{}
	for _, h := range holders {
		switch {
		case h.Term < last.Term:
			found = append(found, describe(last, h, "the term fell"))
		case h.Identity != "" && last.Identity != "" && h.Identity != last.Identity && h.Term == last.Term:
			found = append(found, describe(last, h, "two holders in one term"))
		}
		if last.Term = h.Term; h.Identity != "" {
			last.Identity = h.Identity
		}
	}
	return found
}

func describe(before, after Holder, what string) string {
	return fmt.Sprintf("%s: %q in term %d, then %q in term %d", what, before.Identity, before.Term, after.Identity, after.Term)
}
