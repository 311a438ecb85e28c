package election

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// inherit takes over after a clean release: nobody needs to vote, because the former holder said how far its log goes,
// and that nothing of it runs. clean tells whether that is how this campaign goes on.
func (c *Campaign) inherit(now time.Duration) (step Step, clean bool) {
	l := c.lease
	if !c.clean() || c.own.Received < l.Released {
		return Step{}, false
	}
	if l.Successor != "" && l.Successor != c.self && now < c.began+successorWait {
		return Step{Better: l.Successor, At: c.began + successorWait}, true
	}
	lost := int64(0)
	return c.take(&lost, ""), true
}

// probe finds out whether enough members would vote, before anything is promised: a candidate that only has lost its
// own connection to the primary disturbs nobody.
func (c *Campaign) probe(now time.Duration) Step {
	willing := []string{c.self}
	for member, vote := range c.votes {
		if vote.Granted && vote.SystemID == c.own.SystemID && !c.dropped[member] {
			willing = append(willing, member)
		}
	}
	if c.proven(willing) {
		// All are asked again, in earnest.
		c.probing = false
		clear(c.asked)
		return c.detach(now)
	}
	return c.wait(now, c.began, c.quorumMembers())
}

// detach gives the own vote, while the others are asked for theirs.
func (c *Campaign) detach(now time.Duration) Step {
	return Step{Detach: true, Ask: c.ask(now), At: now + askAgain}
}

// vote wins by votes, or waits for them.
func (c *Campaign) vote(now time.Duration) Step {
	votes := c.evidence()
	names := make([]string, 0, len(votes))
	for _, vote := range votes {
		names = append(names, vote.Instance)
	}
	proven := c.proven(names)
	if !c.lease.Sync.Synchronous() {
		proven = len(names) == len(c.members()) // The former primary is one of them.
	}
	required := c.lease.Sync.Required || c.rules.Required
	if !proven && (required || now < c.voting+answerWait && !c.allAnswered()) {
		return c.wait(now, c.voting, c.quorumMembers())
	}
	if better := c.best(votes); better != "" {
		return c.yield(now, better)
	}
	if proven {
		lost := int64(0)
		return c.take(&lost, "")
	}
	return c.takeAtRisk(now)
}

// proven tells whether the instances are enough of each quorum in force: one of them has every acknowledged commit,
// and, if all are detached, no other can be acknowledged.
func (c *Campaign) proven(instances []string) bool {
	for _, q := range c.lease.Sync.InForce {
		if count(q.Standbys, instances) < len(q.Standbys)-q.Number+1 {
			return false
		}
	}
	return c.lease.Sync.Synchronous()
}

func count(names, among []string) int {
	n := 0
	for _, name := range names {
		if slices.Contains(among, name) {
			n++
		}
	}
	return n
}

// takeAtRisk takes a free Lease where no quorum proves anything, if not more than the allowed log may be lost.
func (c *Campaign) takeAtRisk(now time.Duration) Step {
	l := c.lease
	if c.suspected {
		return Step{Over: true, Reason: "the Lease is not free"}
	}
	lost, known := c.forgone()
	if until := c.began + c.rules.LeaseDuration; known && now < until {
		// Nothing needs to be lost if it comes back, as it does where its pod is made anew.
		return Step{Better: l.Former(), At: until}
	}
	if c.own.Timeline < l.Timeline {
		return Step{Over: true, Behind: true, Reason: fmt.Sprintf("has timeline %d only, and the primary was on %d", c.own.Timeline, l.Timeline)}
	}
	if l.WALLSN == 0 {
		return Step{Over: true, Reason: "the primary never said how far it had written"}
	}
	behind := l.WALLSN.BytesAfter(c.own.Received)
	if behind > c.rules.MaxLag {
		return Step{Over: true, Behind: true, Reason: fmt.Sprintf("lacks %d bytes of what the primary had written, and may lack %d", behind, c.rules.MaxLag)}
	}
	if known {
		return c.take(&lost, "")
	}
	return c.take(nil, fmt.Sprintf("asynchronous: %d bytes of what the primary had written at its last renewal are missing, "+
		"and what it wrote since is not known", behind))
}

// forgone is how much log of a holder that released the Lease in good order the own instance lacks, if that is known: its
// connection broke just before.
func (c *Campaign) forgone() (bytes int64, known bool) {
	if !c.clean() || c.own.Received >= c.lease.Released {
		return 0, false
	}
	return int64(c.lease.Released.BytesAfter(c.own.Received)), true
}

// clean tells whether a holder released the Lease in good order, and how far its log goes on the own timeline. A position
// says nothing on another one, and one that was begun may not have been noted as that of Released.
func (c *Campaign) clean() bool {
	l := c.lease
	return l.Holder == "" && l.ReleasedBy != "" && l.Released > 0 && !c.older() && c.own.Timeline == l.Timeline && l.Timeline >= l.Newest
}

// best is a candidate that has more than the own instance, or has the same and replayed it sooner; empty if there is none.
// Of equal ones each may try: the Lease goes to the first.
func (c *Campaign) best(votes []Vote) string {
	better := c.own
	better.Instance = ""
	for _, vote := range votes {
		if vote.Instance == c.self {
			continue
		}
		if order := byData(vote, better); order > 0 || order == 0 && better.Lagging && !vote.Lagging {
			better = vote
		}
	}
	return better.Instance
}

// yield waits for the better candidate to take the Lease, and does without its vote when it does not.
func (c *Campaign) yield(now time.Duration, better string) Step {
	if c.better != better {
		c.better, c.betterSince = better, now
	}
	if until := c.betterSince + betterWait; now < until {
		return Step{Better: better, At: until}
	}
	c.dropped[better] = true
	return c.vote(now)
}

// takeOlder is for a Lease that is older than the database: what it says proves nothing, so all members have to answer,
// and who has most takes it; of two with the same the one that led last, whose log may have more to it than is known.
func (c *Campaign) takeOlder(now time.Duration) Step {
	for _, member := range c.members() {
		vote, there := c.votes[member]
		switch {
		case member == c.self:
		case !there || vote.SystemID == c.own.SystemID && vote.Complete && !c.given(vote):
			step := c.wait(now, c.voting, c.members())
			step.All = step.Over
			return step
		case vote.SystemID != "" && vote.SystemID != c.own.SystemID:
			return Step{Over: true, Reason: fmt.Sprintf("%s has another database, %s", member, vote.SystemID)}
		case vote.Complete && cmp.Or(byData(vote, c.own), cmp.Compare(vote.LedTerm, c.own.LedTerm)) > 0:
			// No time limit: without its data something would be lost for sure.
			return Step{Over: true, Reason: member + " has more"}
		}
	}
	return c.take(nil, "the Lease did not say how far the primary had written")
}

// wait asks on until the answers had their time since then.
func (c *Campaign) wait(now, since time.Duration, needed []string) Step {
	if now >= since+answerWait {
		return Step{Over: true, Reason: "not enough members vote", Missing: c.missing(needed)}
	}
	return Step{Ask: c.ask(now), At: min(now+askAgain, since+answerWait)}
}

// allAnswered tells whether nobody is worth waiting for but the former holder. Who could not be reached once may have
// more of the log.
func (c *Campaign) allAnswered() bool {
	former := c.lease.Former()
	for _, member := range c.members() {
		_, there := c.votes[member]
		if member != c.self && member != former && !there {
			return false
		}
	}
	return true
}

// quorumMembers are all that a quorum in force counts, or all members if none is.
func (c *Campaign) quorumMembers() []string {
	if !c.lease.Sync.Synchronous() {
		return c.members()
	}
	var members []string
	for _, q := range c.lease.Sync.InForce {
		members = append(members, q.Standbys...)
	}
	return slices.Compact(slices.Sorted(slices.Values(members)))
}
