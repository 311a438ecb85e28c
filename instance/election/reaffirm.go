package election

import "time"

// The bounds of the pause between two reaffirmations.
const (
	reaffirmMin = time.Second
	reaffirmMax = 30 * time.Second
)

// Reaffirm says when a holder takes its Lease again, in a new term, because a member promised never to stream from the
// present one: without that it could not follow any more. Repeated ones wait longer and longer, so that a member with a
// bad connection does not have the term rise without end.
type Reaffirm struct {
	next, pause time.Duration
	ever        bool
}

// Due tells whether to take the Lease again. term is the holder's own, promised the newest that any member told of.
func (r *Reaffirm) Due(now time.Duration, term, promised int32) bool {
	return promised >= term && (!r.ever || now >= r.next)
}

// Done tells that the Lease was taken again.
func (r *Reaffirm) Done(now time.Duration) {
	switch {
	case !r.ever || now > r.next+reaffirmMax:
		r.pause = reaffirmMin
	default:
		r.pause = min(2*r.pause, reaffirmMax)
	}
	r.ever, r.next = true, now+r.pause
}
