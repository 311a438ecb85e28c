package election

import (
	"math"
	"time"
)

// Unlimited is the end of a licence that does not end.
const Unlimited time.Duration = math.MaxInt64

// leastMargin and marginShare are the time between the end of a licence and the moment when others may take the Lease:
// for clocks that do not run alike, and for processes to die.
const (
	leastMargin = 500 * time.Millisecond
	marginShare = 10
)

// Margin is how much earlier than a Lease's duration its holder's licence ends.
func Margin(duration time.Duration) time.Duration {
	return max(duration/marginShare, leastMargin)
}

// Licence is until when the holder of the Lease may let its database take writes. Its zero value is none. Every time is
// one on the holder's own clock, which must go on while its node is suspended.
type Licence struct {
	end time.Duration
	// writes counts the writes that were begun.
	writes int
}

// Renewal is a write of the Lease by its holder of which it is not known yet what became of it.
type Renewal struct {
	end    time.Duration
	number int
}

// Renewing must be called before the holder writes the Lease with a duration; alone tells that no other instance is a
// member in what it writes. Others may go by what is written as soon as it is, even if its writer never learns of that:
// a shorter duration, or the first other member, shortens the licence at once.
func (l *Licence) Renewing(now, duration time.Duration, alone bool) Renewal {
	end := Unlimited
	if !alone {
		end = now + duration - Margin(duration)
	}
	l.end = min(l.end, end)
	l.writes++
	return Renewal{end: end, number: l.writes}
}

// Renewed tells that a write succeeded: until the Lease's duration after it began nobody else takes the Lease. It is
// worth nothing if another write was begun since, which may say less.
func (l *Licence) Renewed(r Renewal) {
	if r.number == l.writes {
		l.end = max(l.end, r.end)
	}
}

// Promised tells that all other members, asked at a time, promised not to let anybody else take the Lease for a
// duration. It is worth nothing if the licence had ended by then: somebody may have taken the Lease before.
func (l *Licence) Promised(asked, duration time.Duration) {
	if asked < l.end {
		l.end = max(l.end, asked+duration-Margin(duration))
	}
}

// Revoke ends the licence: another one holds the Lease, or nobody.
func (l *Licence) Revoke() { l.end = 0 }

// End is when the licence ends: 0 if there is none, Unlimited if it does not end.
func (l *Licence) End() time.Duration { return l.end }
