package election

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// Campaign is one attempt of a candidate to take the Lease as it was just read. The caller goes on by what Next says,
// and tells of answers with Reply. It is given up when the Lease is found changed.
type Campaign struct {
	rules     Rules
	lease     lease.Lease
	began     time.Duration
	self      string
	suspected bool
	// term that the campaign wants to end: the newest that the candidate knew of as it began.
	term int32
	// own vote, and those of others by instance; asked and refused are when and why.
	own     Vote
	votes   map[string]Vote
	asked   map[string]time.Duration
	refused map[string]string
	// probing: the own vote is not given yet, and the others' are not asked for in earnest.
	probing bool
	// voting is when the own vote was given.
	voting time.Duration
	// better is a candidate that has to go first, since betterSince; dropped had their time.
	better      string
	betterSince time.Duration
	dropped     map[string]bool
}

// Step is what a candidate does next. At most one of Take, Detach and Over is set. Without Take and Over it waits for
// replies, and calls Next again after each, and at At.
type Step struct {
	// Take: write Lease by compare-and-swap. If only the holder renewed it meanwhile (lease.Lease.Same), AgainstRenewals
	// tells whether that may be tried again with the newer Version; in any other case the campaign is over.
	Take            bool
	Lease           lease.Lease
	AgainstRenewals bool
	// LostBytes is how much log of acknowledged commits may be lost at most, nil if that is not known: LostUnknown says
	// why. Both belong into the failover's record.
	LostBytes   *int64
	LostUnknown string
	// Detach: have the own Voter consider Campaign.Request, write the promise, detach, and Reply with the own vote. Ask may
	// be set, too. It is set again until the own vote is given; who is at it already need not begin again.
	Detach bool
	// Ask are the members to send Campaign.Request to, now.
	Ask []string
	// Over: there is no right to win, for Reason. Missing says what of each member is missing.
	Over    bool
	Reason  string
	Missing []string
	// Behind: too much of the log would be lost. All: every member has to vote, because the Lease proves nothing.
	Behind, All bool
	// Seen is a term that began since the Lease was read, if the campaign is over because of one: tell Watch.Told. Should
	// the Lease still be older when it is read again, it is not to be trusted.
	Seen int32
	// Better is the instance that is waited for because it has more.
	Better string
	// At is when to call Next again if no reply comes before.
	At time.Duration
}

// NewCampaign begins an attempt of self to take l, which was read from the API server just now. own is its vote, not
// given yet (neither promised nor detached). suspected: the Lease is not free, only Watch.Suspects allows the campaign.
func NewCampaign(now time.Duration, self string, rules Rules, l lease.Lease, own Vote, suspected bool) *Campaign {
	return &Campaign{
		rules: rules, lease: l, began: now, self: self, suspected: suspected, own: own, probing: suspected,
		term:  max(l.Term, own.Promised, own.LedTerm, own.SeenTerm),
		votes: map[string]Vote{}, asked: map[string]time.Duration{}, refused: map[string]string{}, dropped: map[string]bool{},
	}
}

// Request is what to ask members, the own voter included.
func (c *Campaign) Request() VoteRequest {
	return VoteRequest{Candidate: c.self, SystemID: c.own.SystemID, Term: c.term, Free: !c.suspected, Probe: c.probing}
}

// Reply tells of an answer of from: vote, or nil and the problem with it. Votes that are not about the present
// Request's term count for nothing, so late and repeated ones do no harm.
func (c *Campaign) Reply(now time.Duration, from string, vote *Vote, problem string) {
	if vote == nil {
		c.refused[from] = problem
		return
	}
	if from == c.self {
		c.own, c.voting, c.probing = *vote, now, false
		if !vote.Granted {
			c.refused[from] = vote.Refusal
		}
		return
	}
	if known, there := c.votes[from]; there && c.given(known) && !c.given(*vote) {
		return // A late answer to a probe takes nothing back.
	}
	c.votes[from] = *vote
	delete(c.refused, from)
	if !vote.Granted {
		c.refused[from] = vote.Refusal
	}
}

// Next says what to do at now.
func (c *Campaign) Next(now time.Duration) Step {
	if reason := c.unfit(); reason != "" {
		return Step{Over: true, Reason: reason}
	}
	if newest := c.newest(); newest > c.term {
		return Step{Over: true, Reason: fmt.Sprintf("term %d has begun", newest), Seen: newest}
	}
	if step, clean := c.inherit(now); clean {
		return step
	}
	if !c.rules.Enabled {
		return Step{Over: true, Reason: "failover is disabled"}
	}
	if c.refused[c.self] != "" {
		return Step{Over: true, Reason: c.refused[c.self]}
	}
	if c.probing {
		return c.probe(now)
	}
	if !c.given(c.own) {
		return c.detach(now)
	}
	if c.older() {
		return c.takeOlder(now)
	}
	return c.vote(now)
}

// unfit says why the candidate can win no election at all.
func (c *Campaign) unfit() string {
	switch {
	case c.lease.Problem != "":
		return c.lease.Problem
	case !c.own.Complete || c.own.SystemID == "":
		return "has no complete data"
	case c.lease.SystemID != "" && c.lease.SystemID != c.own.SystemID:
		return fmt.Sprintf("has the database %s, not %s", c.own.SystemID, c.lease.SystemID)
	case !slices.Contains(c.members(), c.self):
		return "is not a member yet"
	case c.term >= math.MaxInt32-1:
		return "the terms are used up"
	}
	return ""
}

// older tells whether the Lease is older than the database: made anew, or restored from an old copy.
func (c *Campaign) older() bool { return c.lease.SystemID == "" || c.lease.Term < c.term }

// newest is the newest term that anybody is known to know of.
func (c *Campaign) newest() int32 {
	newest := c.term
	for _, vote := range c.votes {
		newest = max(newest, vote.Promised, vote.LedTerm, vote.SeenTerm)
	}
	return newest
}

// voters are all whose votes count: the members, and who is no member any more as long as a quorum counts it.
func (c *Campaign) voters() []string {
	voters := slices.Clone(c.members())
	for _, q := range c.lease.Sync.InForce {
		voters = append(voters, q.Standbys...)
	}
	return slices.Compact(slices.Sorted(slices.Values(voters)))
}

// members may take the Lease: those in it, and where that is older than the database the wanted ones, because it may
// name some that are long gone.
func (c *Campaign) members() []string {
	if c.older() && len(c.rules.Members) > 0 {
		return c.rules.Members
	}
	return c.lease.Members
}

// given tells whether a vote was given for this campaign: nothing that its instance has will change while the Lease
// stays in its term.
func (c *Campaign) given(v Vote) bool {
	return v.Granted && v.Detached && v.Promised >= c.term && v.SystemID == c.own.SystemID
}

// evidence are the votes that were given, the own included, without those of members that had their time.
func (c *Campaign) evidence() []Vote {
	votes := []Vote{}
	for _, member := range c.voters() {
		vote, there := c.votes[member]
		if member == c.self {
			vote, there = c.own, true
		}
		if there && c.given(vote) && !c.dropped[member] {
			vote.Instance = member
			votes = append(votes, vote)
		}
	}
	return votes
}

// byData orders votes by how much of the database's history they have.
func byData(a, b Vote) int {
	return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.Received, b.Received))
}

// take is the step that takes the Lease, with lost bytes of log at most, or nil and why that is not known.
func (c *Campaign) take(lost *int64, unknown string) Step {
	l := c.lease
	l.Term = c.term
	if c.older() {
		l.SystemID, l.Members, l.Sync = c.own.SystemID, c.members(), lease.Sync{}
	}
	l.Sync = c.rules.SyncWhenTaken(c.self, l)
	l = l.Taken(lease.Identity(c.self, c.own.Incarnation))
	l.WALLSN = c.own.Received
	l.Newest = max(l.Newest, l.Timeline, c.newestTimeline()) + 1
	return Step{Take: true, Lease: l, AgainstRenewals: c.suspected, LostBytes: lost, LostUnknown: unknown}
}

func (c *Campaign) newestTimeline() postgres.Timeline {
	newest := c.own.Timeline
	for _, vote := range c.votes {
		newest = max(newest, vote.Timeline)
	}
	return newest
}

// ask are the members to ask now: those never asked, and from time to time those that gave no vote.
func (c *Campaign) ask(now time.Duration) []string {
	var ask []string
	for _, member := range c.voters() {
		if member == c.self || c.given(c.votes[member]) {
			continue
		}
		if at, asked := c.asked[member]; !asked || now >= at+askAgain {
			c.asked[member] = now
			ask = append(ask, member)
		}
	}
	return ask
}

// missing says what is missing of each of the members that gave no vote.
func (c *Campaign) missing(members []string) []string {
	var missing []string
	for _, member := range members {
		vote, there := c.votes[member]
		switch {
		case member == c.self || there && c.given(vote) && !c.dropped[member]:
		case c.dropped[member]:
			missing = append(missing, member+" has more, but does not take over")
		case c.refused[member] != "":
			missing = append(missing, member+": "+c.refused[member])
		default:
			missing = append(missing, member+" does not answer")
		}
	}
	return missing
}
