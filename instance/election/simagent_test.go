package election

import (
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// agent is an instance's agent: the objects of this package, driven as the real one drives them.
type agent struct {
	node     *node
	world    *world
	identity string
	rules    Rules

	watch      *Watch
	voter      *Voter
	licence    Licence
	electorate Electorate
	reaffirm   Reaffirm

	last  lease.Lease
	known bool
	// mine is the Lease as this incarnation last held it.
	mine    lease.Lease
	holding bool
	// calling: a call of the API server is under way. next is when the Lease is due again; failing: it failed last time.
	calling bool
	next    time.Duration
	failing bool
	// told is the newest promise that members told of.
	told int32
	// starting: PostgreSQL is being started or stopped. round is the last round for hold-promises.
	starting bool
	round    time.Duration

	heartbeatAt time.Duration
	followAt    time.Duration
	connectedAt time.Duration
	repairing   bool

	campaign  *Campaign
	pausing   time.Duration
	detaching bool
	release   time.Duration
	handover  string

	// What PostgreSQL was last given to wait for, since when, and how far the log was a while later.
	applied   lease.Quorum
	appliedAt time.Duration
	damping   Damping
	mark      postgres.LSN
	markAt    time.Duration
	renewedAt time.Duration
	// doubt: a write that changes what commits wait for may have arrived.
	doubt bool
}

// loop looks at everything from time to time.
func (a *agent) loop() {
	a.rules = a.world.rules
	a.watch.SetRules(a.rules)
	a.look()
	a.node.agentAfter(a.world.between(180*time.Millisecond, 280*time.Millisecond), a.loop)
}

func (a *agent) look() {
	w, n := a.world, a.node
	a.watch.Awake(w.now)
	if w.sabotage.forgetHolds {
		a.watch.holdUntil = 0
	}
	if n.messageAt > 0 && a.known && nodeName(n.messageFrom) == a.last.HeldBy() && a.voter.MayFollow(a.last.Term) && n.server.connection != 0 {
		a.watch.Heard(n.messageAt)
	}
	n.messageAt = 0
	if a.holding {
		a.lead()
		return
	}
	if !a.calling && w.now >= a.next {
		a.read(func() {})
	}
	if a.reclaims() {
		a.reclaim()
		return
	}
	a.follow()
	a.heartbeat()
	a.challenge()
}

func (a *agent) alone(members []string) bool {
	return !slices.ContainsFunc(members, func(m string) bool { return m != a.node.name })
}

// write writes the Lease as its holder, or as who takes it.
func (a *agent) write(l lease.Lease, done func(callResult)) {
	w := a.world
	a.calling = true
	l.Duration = a.rules.LeaseDuration
	a.doubt = a.doubt || !l.Sync.Equal(a.last.Sync)
	began, release := w.now, l.Holder != a.identity
	if release && !w.sabotage.releaseLate {
		a.licence.Revoke() // The write may arrive though its answer does not.
	}
	renewal := a.licence.Renewing(w.now, l.Duration, a.alone(l.Members))
	a.electorate.Writing(l.Members)
	a.license()
	w.call(a.node, &l, func(result callResult, written lease.Lease) {
		a.calling = false
		if result == callDone {
			if !release {
				a.licence.Renewed(renewal)
			}
			a.electorate.Is(written.Members)
			a.failing, a.doubt, a.renewedAt = false, false, began
			a.learn(written)
		}
		done(result)
	})
}

func (a *agent) license() {
	end := a.licence.End()
	if a.world.sabotage.lateFence && end != Unlimited && end > 0 {
		end += a.rules.LeaseDuration / 2
	}
	a.node.license(end)
}

func (a *agent) read(done func()) {
	a.calling = true
	a.world.call(a.node, nil, func(result callResult, l lease.Lease) {
		a.calling = false
		a.next = a.world.now + a.world.between(200*time.Millisecond, 800*time.Millisecond)
		if result == callDone {
			a.learn(l)
			done()
		}
	})
}

// learn takes over what the API server said.
func (a *agent) learn(l lease.Lease) {
	w, n := a.world, a.node
	l = l.Since(n.seen)
	a.watch.Observe(w.now, l)
	if w.sabotage.impatient {
		a.watch.since -= l.Duration / 2
	}
	changed := !a.known || !a.last.Same(l)
	renewed := a.known && a.last.Version != l.Version
	a.last, a.known = l, true
	n.seen = max(n.seen, l.Term)
	held := a.holding || n.server.primary
	a.holding = l.Holder == a.identity && l.Term >= a.watch.Known()
	if held && !a.holding && a.reclaims() {
		return
	}
	if !a.holding && (held || l.Holder != "") {
		a.licence.Revoke()
		a.license()
		n.fence("it does not hold the Lease any more")
	}
	if a.holding {
		a.mine = l
		if !n.server.replica {
			n.led = l.Term // It takes the Lease with a primary's data only if nobody led since.
		}
		a.electorate.Writing(l.Members)
		a.license()
		a.campaign = nil
	}
	if a.campaign != nil && (changed || renewed && !a.campaign.suspected) {
		a.drop("the Lease changed")
	}
}

// reclaims tells whether a running primary may take the Lease back: somebody cleared it, made it anew, or restored an
// older one. It goes on as long as its licence does.
func (a *agent) reclaims() bool {
	return a.node.server.primary && a.licensed() && a.node.led == a.watch.Known() &&
		(a.last.Holder == "" && a.last.ReleasedBy == "" || a.watch.Older())
}

// lead is what the holder does.
func (a *agent) lead() {
	w, n, s := a.world, a.node, a.node.server
	if a.failing && w.now >= a.round+time.Second {
		a.askToHold()
	}
	switch {
	case a.calling:
	case a.handover != "" && s.primary && !a.starting:
		a.handOver()
	case a.reaffirm.Due(w.now, a.last.Term, max(a.told, n.promised)):
		a.reaffirm.Done(w.now)
		a.write(a.annotate(a.last.Taken(a.identity)), func(result callResult) {
			if result != callDone {
				a.read(func() {})
				return
			}
			w.count("reaffirmations")
			w.note("%s: reaffirmed, term %d", n.name, a.last.Term)
			if s.primary {
				s.rename(a.last.Term)
			}
		})
	case w.now >= a.next:
		a.renew(a.annotate(a.last))
	default:
		if step := a.sync(); step.Record != nil {
			l := a.annotate(a.last)
			l.Sync = *step.Record
			w.note("%s: wants to record %v", n.name, l.Sync)
			a.renew(l)
		} else if step.Apply != nil {
			w.note("%s: applies %v", n.name, *step.Apply)
			a.apply(*step.Apply)
			s.reload(*step.Apply)
		}
	}
	a.serve()
}

func (a *agent) reclaim() {
	if a.calling || a.world.now < a.pausing {
		return
	}
	a.pausing = a.world.now + a.world.between(200*time.Millisecond, 500*time.Millisecond)
	l := a.mine // The other one does not tell what commits wait for.
	l.Version, l.Term = a.last.Version, max(a.last.Term, a.watch.Known())
	a.write(a.annotate(l.Taken(a.identity)), func(result callResult) {
		if result != callDone {
			a.read(func() {})
		} else if s := a.node.server; s.primary {
			s.rename(a.last.Term)
		}
	})
}

func (a *agent) annotate(l lease.Lease) lease.Lease {
	l.SystemID = "7"
	l.Members = a.world.members
	if s := a.node.server; !s.replica {
		l.Timeline, l.WALLSN = max(l.Timeline, s.branch.timeline), max(l.WALLSN, s.lsn)
		l.Newest = max(l.Newest, l.Timeline)
	}
	return l
}

func (a *agent) renew(l lease.Lease) {
	a.write(l, func(result callResult) {
		switch result {
		case callDone:
			a.next = a.world.now + a.rules.LeaseDuration/3
		case callConflict:
			a.next = a.world.now
			a.read(func() { a.next = a.world.now })
		case callFailed:
			a.failing = true
			a.next = a.world.now + a.rules.LeaseDuration/6
			// Whether it was written is not known.
			a.read(func() { a.next = a.world.now })
		}
	})
}

// askToHold asks all others not to stand while renewals fail.
func (a *agent) askToHold() {
	w := a.world
	a.round = w.now
	asked, r := w.now, HoldRequest{Holder: a.identity, Term: a.last.Term, Duration: a.rules.LeaseDuration}
	others := a.electorate.Others(a.node.name)
	missing := len(others)
	for _, other := range others {
		id, answered := nodeID(other), false
		a.send(id, func(b *agent) {
			answer := b.voter.Hold(w.now, r)
			b.send(a.node.id, func(*agent) {
				a.told = max(a.told, answer.Promised)
				if answered || !answer.Granted && !w.sabotage.ignoreRefusals {
					return
				}
				answered = true
				if missing--; missing == 0 && a.holding {
					a.licence.Promised(asked, r.Duration)
					a.license()
					w.count("held by promises")
					w.note("%s: all promised to hold still, licensed until %v", a.node.name, a.licence.End())
				}
			})
		})
	}
}

// send has another agent do something, if the message arrives. What is sent back to a later incarnation is lost.
func (a *agent) send(to int, do func(*agent)) {
	w := a.world
	target := w.nodes[to]
	expected := target.agent
	w.send(a.node.id, to, func() {
		b := target.agent
		if b != nil && (b == expected || expected == nil) {
			target.atAgent(b, func() { do(b) })
		}
	})
}

// serve has PostgreSQL take writes while the licence lasts.
func (a *agent) serve() {
	w, n, s := a.world, a.node, a.node.server
	if !a.licensed() || a.starting || s.primary || s.branch == nil || a.repairing {
		return
	}
	if !s.up && !s.replica && n.led == a.last.Term && a.release == 0 && a.streaming() > 0 && w.now < n.diedAt()+time.Second {
		a.giveUp(0, "")
		return
	}
	if s.torn || s.replica && !s.complete {
		return
	}
	term, elected := a.last.Term, s.replica
	a.starting = true
	n.agentAfter(w.between(50*time.Millisecond, 600*time.Millisecond), func() {
		a.starting = false
		if !a.holding || a.last.Term != term || !a.licensed() || s.primary {
			return
		}
		a.apply(SyncAtStart(a.last.Sync, a.durability(), a.others()))
		s.quorum = a.applied
		n.led = term
		if elected {
			timeline := max(s.branch.timeline+1, a.last.Newest)
			if w.sabotage.anyTimeline {
				timeline = s.branch.timeline + 1
			}
			s.promote(term, timeline)
		} else {
			s.rename(term)
		}
		s.start(true)
		n.sentinel()
		a.next = w.now // The new timeline is noted at once.
	})
}

func (a *agent) durability() Durability {
	return Durability{Number: a.rules.Number, Required: a.rules.Required}
}

func (a *agent) others() []string {
	return slices.DeleteFunc(slices.Clone(a.last.Members), func(m string) bool { return m == a.node.name })
}

func (a *agent) streaming() int {
	n := 0
	for _, connection := range a.node.server.replicas {
		if connection != 0 {
			n++
		}
	}
	return n
}

func (a *agent) apply(q lease.Quorum) {
	a.applied, a.appliedAt, a.mark, a.markAt = q, a.world.now, 0, 0
}

// sync brings what commits wait for in line with what is wanted.
func (a *agent) sync() SyncStep {
	w, s := a.world, a.node.server
	if !s.primary || a.starting {
		return SyncStep{}
	}
	settled := false
	if w.now >= a.appliedAt+1500*time.Millisecond && a.mark == 0 {
		a.mark, a.markAt = s.lsn, w.now
	}
	if a.mark > 0 {
		settled = a.renewedAt > a.markAt && s.covered(a.mark)
	}
	if w.sabotage.unsettled {
		settled = true
	}
	facts := SyncFacts{Wanted: a.durability(), Others: a.others(), Record: a.last.Sync, Applied: a.applied, Settled: settled, Doubt: a.doubt && !w.sabotage.noDoubt}
	for i, connection := range s.replicas {
		if connection != 0 && s.flushed[i]+200 >= s.lsn && slices.Contains(facts.Others, nodeName(i)) {
			facts.Streaming = append(facts.Streaming, nodeName(i))
		}
	}
	facts.Damped = a.damping.Look(w.now, facts.Streaming)
	step := NextSync(facts)
	if w.sabotage.noJoint && step.Record != nil && len(step.Record.InForce) > 1 {
		q := step.Record.InForce[len(step.Record.InForce)-1]
		step.Record = &lease.Sync{Required: step.Record.Required, InForce: []lease.Quorum{q}}
	}
	return step
}

// giveUp releases the Lease; nothing of PostgreSQL runs.
func (a *agent) giveUp(end postgres.LSN, successor string) {
	w := a.world
	if a.calling {
		return
	}
	a.release = w.now
	a.starting = true
	a.write(a.annotate(a.last).Yielded(end, successor), func(result callResult) {
		a.starting = false
		a.handover = ""
		if result != callDone {
			a.read(func() {})
		}
	})
}

// handOver stops PostgreSQL in good order, and gives the Lease to the wanted successor.
func (a *agent) handOver() {
	w, s := a.world, a.node.server
	target := nodeID(a.handover)
	if s.replicas[target] == 0 {
		a.handover = ""
		return
	}
	a.starting, s.stopping = true, true
	run := s.run
	a.node.agentAfter(w.between(200*time.Millisecond, time.Second), func() {
		a.starting = false
		if s.run != run || !s.primary {
			return
		}
		end, successor := s.lsn, ""
		if s.flushed[target] >= end {
			successor = a.handover
		}
		w.note("%s: stopped in good order at %v for %q", a.node.name, end, successor)
		s.stop()
		a.giveUp(end, successor)
	})
}

func (a *agent) licensed() bool { return a.world.now < a.licence.End() }
