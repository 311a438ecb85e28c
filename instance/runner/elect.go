package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/lease"
)

const (
	// electAgain is how soon a campaign that led to nothing is followed by the next one, twice as late each time up to
	// electAgainMax.
	electAgain    = 250 * time.Millisecond
	electAgainMax = 3 * time.Second
	// unclaimed is for how long nobody takes a free Lease before who gave it away takes it back.
	unclaimed = 3 * time.Second
)

// elect campaigns until this instance or another one holds the Lease, or there is no reason to any more. ctx ends when
// the main loop finds that.
func (r *Runner) elect(ctx context.Context) error {
	defer r.waitFor("", "")
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause, detected := electAgain, time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		over, err := r.campaign(ctx, detected)
		if over || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			r.log.Error(err, "Failed to hold an election")
			r.waitFor(contract.WaitingForLease, "cannot read or take the Lease: "+err.Error())
		}
		timer.Reset(pause)
		pause = min(2*pause, electAgainMax)
	}
}

// campaign asks the members once, and takes the Lease if they have it so. over tells that there is nothing to campaign
// for, or that it was won. detected is when the first attempt began.
func (r *Runner) campaign(ctx context.Context, detected time.Time) (over bool, err error) {
	// Without the API server nobody can win, and nobody is to lose the primary for it.
	l, err := r.keeper.candidacy(ctx)
	if err != nil {
		return false, err
	}
	challenge := r.view.challenge(r.elapsed())
	if !challenge.Due {
		r.poke()
		return true, nil
	}
	q := election.VoteRequest{
		Candidate: r.options.Instance, SystemID: r.systemID(), Term: l.Term, Free: challenge.Free, Probe: true,
	}
	own := r.Vote(ctx, q)
	own.Granted = false // Only when it is given in earnest.
	run := candidacy{
		runner: r, lease: l, suspected: !challenge.Free, detected: detected, begun: time.Now(), replies: make(chan reply, 2*len(l.Members)+2),
		campaign: election.NewCampaign(r.elapsed(), r.options.Instance, r.view.current(), l, own, !challenge.Free),
	}
	return run.run(ctx)
}

func (r *Runner) systemID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts.Data.SystemID
}

// candidacy is one campaign that is carried out.
type candidacy struct {
	runner    *Runner
	lease     lease.Lease
	suspected bool
	campaign  *election.Campaign
	// detected is when the first attempt began, of which the failover's record tells, begun when this one did.
	detected, begun time.Time
	replies         chan reply
	// asking are the members, and the instance itself, whose answers are awaited.
	asking map[string]bool
}

// silent is what a member is that cannot be asked.
const silent = "does not answer"

// reply is a member's vote, or why there is none.
type reply struct {
	from    string
	vote    *election.Vote
	problem string
}

func (c *candidacy) run(ctx context.Context) (over bool, err error) {
	// What is asked goes on after the end only until it is answered: votes are promises, which cannot be taken back.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.asking = map[string]bool{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := c.runner.elapsed()
		step := c.campaign.Next(now)
		switch {
		case step.Take:
			return c.take(ctx, step)
		case step.Over:
			c.tell(step)
			return false, nil
		case step.Detach:
			c.ask(ctx, c.runner.options.Instance)
		case step.Better != "":
			c.runner.waitFor(contract.WaitingForElection, fmt.Sprintf("waits for %s, which has more of the log, to take over", step.Better))
		}
		for _, member := range step.Ask {
			c.ask(ctx, member)
		}
		timer.Reset(max(step.At-now, time.Millisecond))
		select {
		case <-ctx.Done():
			return true, nil
		case <-timer.C:
		case got := <-c.replies:
			delete(c.asking, got.from)
			c.campaign.Reply(c.runner.elapsed(), got.from, got.vote, got.problem)
		}
	}
}

// ask asks one for its vote, unless its answer is still awaited.
func (c *candidacy) ask(ctx context.Context, member string) {
	if c.asking[member] {
		return
	}
	c.asking[member] = true
	q := c.campaign.Request()
	go func() {
		got := reply{from: member}
		if member == c.runner.options.Instance {
			vote := c.runner.Vote(ctx, q)
			got.vote = &vote
		} else if vote, err := c.runner.peers.Vote(ctx, member, q); err == nil {
			got.vote = &vote
		} else {
			got.problem = silent
		}
		select {
		case c.replies <- got:
		case <-ctx.Done():
		}
	}()
}

// tell says what a campaign that led to nothing waits for.
func (c *candidacy) tell(step election.Step) {
	message := step.Reason
	if len(step.Missing) > 0 {
		message = strings.ReplaceAll(strings.Join(step.Missing, ", "), ": "+silent, " "+silent)
	}
	if step.Seen > 0 {
		c.runner.seen(step.Seen)
	}
	c.runner.log.Info("Was not elected", "term", c.lease.Term, "reason", step.Reason, "missing", step.Missing)
	c.runner.waitFor(waitWord(step), message)
}

// take takes the Lease, as the one that was elected.
func (c *candidacy) take(ctx context.Context, step election.Step) (over bool, err error) {
	r := c.runner
	voted := time.Since(c.begun)
	l := step.Lease
	if from := c.lease.Former(); from != r.options.Instance {
		l.Failover = &lease.Failover{
			From: from, To: r.options.Instance, Cause: c.cause(), Term: l.Term, Detected: c.detected.UTC().Truncate(time.Millisecond),
			LostBytes: step.LostBytes, LostUnknown: step.LostUnknown,
		}
	}
	won, err := r.keeper.Win(ctx, l, c.lease, step.AgainstRenewals)
	if err != nil || !won {
		return false, err
	}
	r.log.Info("Was elected", "term", l.Term, "after", l.Failover, "votes", voted.String(), "taken", time.Since(c.begun).String())
	r.hintPeers(ctx, l.Term)
	return true, nil
}

// seen notes a term that another member told of.
func (r *Runner) seen(term int32) {
	r.view.told(term)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory.SeenTerm = max(r.memory.SeenTerm, term)
	r.remember()
}

// cause is why it is.
func (c *candidacy) cause() string {
	c.runner.mu.Lock()
	dead := c.runner.dead
	c.runner.mu.Unlock()
	l := c.lease
	switch {
	case l.Holder != "" && l.Holder == dead:
		return contract.CausePrimaryDead
	case l.Holder == "" && l.ReleasedBy == "":
		return contract.CauseLeaseCleared
	case l.Holder == "" && l.Released > 0:
		return contract.CauseHandedOver
	case l.Holder == "":
		return contract.CausePostgresFailed
	case c.suspected:
		return contract.CausePrimarySilent
	default:
		return contract.CauseLeaseExpired
	}
}

// hintPeers tells the other members that the Lease is worth a look. Whoever does not hear it looks a little later.
func (r *Runner) hintPeers(ctx context.Context, term int32) {
	r.mu.Lock()
	config := r.facts.Config
	r.mu.Unlock()
	if config == nil || !config.FailoverEnabled {
		return
	}
	for _, member := range config.Members {
		if member == r.options.Instance {
			continue
		}
		go func() {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := r.peers.Hint(limited, member, term); err != nil {
				r.log.V(1).Info("Failed to tell a member of the Lease", "member", member, "reason", err.Error())
			}
		}()
	}
}

// waitFor has the report say what an election waits for: a reason in CamelCase, and more in words.
func (r *Runner) waitFor(reason, message string) {
	r.mu.Lock()
	news := r.waiting != reason || r.progress != message
	r.waiting, r.progress = reason, message
	r.mu.Unlock()
	if news {
		r.poke()
	}
}
