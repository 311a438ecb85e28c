package election

import (
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// diedAt is when PostgreSQL was killed, for the agent that lives on.
func (n *node) diedAt() time.Duration { return n.killedAt }

// follow has PostgreSQL stream from the holder, as far as the own promise allows.
func (a *agent) follow() {
	w, n, s := a.world, a.node, a.node.server
	if !a.known || a.starting || a.repairing || a.campaign != nil {
		return
	}
	l := a.last
	a.resume(l)
	if !s.up && !s.torn && s.branch != nil && !a.starting && (s.replica || n.led < l.Term && l.HeldBy() != n.name && !a.watch.Older()) {
		a.standBy()
		return
	}
	holder := l.HeldBy()
	if holder == "" || holder == n.name || w.now < a.followAt {
		return
	}
	a.followAt = w.now + 250*time.Millisecond
	upstream := nodeID(holder)
	if s.branch == nil || s.torn {
		if slices.Contains(l.Members, n.name) {
			a.repair(upstream, true)
		}
		return
	}
	if !s.up {
		if w.nodes[upstream].server.primary {
			a.standBy()
		}
		return
	}
	if s.primary || !s.complete || !a.voter.MayFollow(l.Term) && !w.sabotage.forgetPromises {
		return
	}
	if s.connection != 0 && s.upstream == upstream && w.now < a.connectedAt+3*time.Second {
		return
	}
	if s.connection != 0 && s.upstream == upstream && w.nodes[upstream].server.replicas[n.id] == s.connection && !w.sever(n.id, upstream) {
		return
	}
	a.connectedAt = w.now
	s.connect(upstream, func(streams bool) {
		if !streams {
			s.disconnect()
			n.agentAfter(time.Millisecond, func() { a.repair(upstream, false) })
		}
	})
}

// standBy starts PostgreSQL as a replica. An instance that led in an earlier term does so although there is nobody to
// follow yet: it may be the one that has the most.
func (a *agent) standBy() {
	n, s := a.node, a.node.server
	a.starting = true
	n.agentAfter(a.world.between(30*time.Millisecond, 300*time.Millisecond), func() {
		a.starting = false
		if !a.holding && !s.up && !s.torn {
			s.replica = true
			s.start(false)
		}
	})
}

// sever tells whether a connection between two nodes is broken.
func (w *world) sever(a, b int) bool { return w.network.cut[a][b] || w.network.cut[b][a] }

// repair rewinds the data to what the primary has, or clones it.
func (a *agent) repair(upstream int, clone bool) {
	w, n, s := a.world, a.node, a.node.server
	primary := w.nodes[upstream].server
	if a.holding || a.campaign != nil || a.repairing || a.starting || !primary.primary || w.sever(n.id, upstream) || w.nodes[upstream].frozenPod ||
		!a.voter.MayFollow(a.last.Term) {
		return
	}
	a.repairing = true
	s.stop()
	if s.branch != nil {
		s.torn = true
		s.complete = false
	}
	run := primary.run
	n.agentAfter(w.between(500*time.Millisecond, 2*time.Second), func() {
		a.repairing = false
		if !primary.primary || primary.run != run || w.sever(n.id, upstream) || w.nodes[upstream].frozenPod || a.holding {
			return
		}
		if clone || s.branch == nil {
			s.branch, s.lsn = primary.branch, primary.lsn
		} else {
			// A rewound copy is consistent only from where the primary was then.
			s.branch, s.lsn = primary.branch, primary.lsn
		}
		s.torn, s.replica, s.complete = false, true, true
		w.note("%s: has the data of %s again, up to %v", n.name, nodeName(upstream), s.lsn)
	})
}

// resume takes the Lease where no election is needed: it was this instance's, and nobody led since.
func (a *agent) resume(l lease.Lease) {
	w, n, s := a.world, a.node, a.node.server
	if a.calling || s.branch == nil || s.torn || s.replica || l.Term < a.watch.Known() || w.now < a.pausing {
		return
	}
	mine := l.HeldBy() == n.name && l.Holder != a.identity
	unclaimed := l.Holder == "" && n.led == l.Term && (l.ReleasedBy == "" || w.now > a.release+3*time.Second)
	if !mine && !unclaimed {
		return
	}
	a.pausing = w.now + w.between(200*time.Millisecond, 500*time.Millisecond)
	taken := l.Taken(a.identity)
	a.starting = true
	a.write(taken, func(result callResult) {
		a.starting = false
		if result != callDone {
			a.read(func() {})
			return
		}
		n.led = a.last.Term
		a.release, a.next = 0, w.now
	})
}

// heartbeat asks the holder's agent whether it and its PostgreSQL are well, and tells of the own promise.
func (a *agent) heartbeat() {
	w, n := a.world, a.node
	holder := a.last.HeldBy()
	if !a.known || holder == "" || holder == n.name || w.now < a.heartbeatAt {
		return
	}
	a.heartbeatAt = w.now + 500*time.Millisecond
	term, promised := a.last.Term, n.promised
	a.send(nodeID(holder), func(b *agent) {
		b.told = max(b.told, promised)
		led, healthy := b.last.Term, b.holding && b.node.server.primary && !b.node.frozenPod
		if !healthy {
			return
		}
		b.send(n.id, func(*agent) {
			if led == term && a.last.Term == term {
				a.watch.Heard(w.now)
			}
		})
	})
}

// challenge begins a campaign when there is a reason for one.
func (a *agent) challenge() {
	w, s := a.world, a.node.server
	if a.campaign != nil {
		a.step()
		return
	}
	if a.calling || a.starting || a.repairing || w.now < a.pausing || s.branch == nil || !s.complete || s.primary {
		return
	}
	// A stopped primary stands only where the Lease does not tell who led last.
	if s.replica != s.up || !s.replica && !a.watch.Older() {
		return
	}
	if !a.reason() || !slices.Contains(a.last.Members, a.node.name) && !a.watch.Older() {
		return
	}
	a.read(func() {
		if a.holding || a.campaign != nil || a.starting || a.repairing || !a.reason() {
			return
		}
		w.count("campaigns")
		free, why := a.watch.Free(w.now)
		if !free {
			w.count("campaigns by suspicion")
			_, why = a.watch.Suspects(w.now)
		}
		w.note("%s: campaigns against term %d: %s", a.node.name, a.last.Term, why)
		l := a.last
		if w.sabotage.fewerVotes {
			l.Sync.InForce = slices.Clone(l.Sync.InForce)
			for i := range l.Sync.InForce {
				l.Sync.InForce[i].Number++
			}
		}
		own := a.ballot()
		if w.sabotage.anyBranch {
			own.Timeline = l.Timeline
		}
		a.campaign = NewCampaign(w.now, a.node.name, a.rules, l, own, !free)
		a.detaching = false
		a.step()
	})
}

func (a *agent) reason() bool {
	if free, _ := a.watch.Free(a.world.now); free {
		return true
	}
	suspects, _ := a.watch.Suspects(a.world.now)
	return suspects
}

func (a *agent) drop(why string) {
	a.world.note("%s: ends its campaign: %s", a.node.name, why)
	a.campaign = nil
	a.pausing = a.world.now + a.world.between(200*time.Millisecond, 800*time.Millisecond)
}

// seen notes a term that another one told of.
func (a *agent) seen(term int32) {
	a.node.seen = max(a.node.seen, term)
	a.watch.Told(term)
}

// step goes on with the campaign.
func (a *agent) step() {
	w, c := a.world, a.campaign
	if c == nil {
		return
	}
	step := c.Next(w.now)
	switch {
	case step.Over:
		a.seen(step.Seen)
		a.drop(step.Reason)
		return
	case step.Take && a.calling:
		return // The loop comes again.
	case step.Take:
		a.take(c, step)
		return
	case step.Detach && !a.detaching:
		a.detaching = true
		a.vote(c.Request(), func(v Vote) { a.reply(c, a.node.name, v) })
	}
	for _, member := range step.Ask {
		if !w.nodes[nodeID(member)].removed {
			a.ask(c, member)
		}
	}
	a.node.agentAfter(max(step.At-w.now, time.Millisecond), func() {
		if a.campaign == c {
			a.step()
		}
	})
}

func (a *agent) ask(c *Campaign, member string) {
	r := c.Request()
	a.send(nodeID(member), func(b *agent) {
		b.vote(r, func(v Vote) {
			b.send(a.node.id, func(*agent) { a.reply(c, member, v) })
		})
	})
}

func (a *agent) reply(c *Campaign, from string, v Vote) {
	if a.world.sabotage.blind && from != a.node.name {
		v.Received, v.Timeline = 0, 0
	}
	if a.world.sabotage.anyBranch {
		v.Timeline = 1
	}
	c.Reply(a.world.now, from, &v, "")
	if a.campaign == c {
		a.step()
	}
}

// take writes the Lease that was won.
func (a *agent) take(c *Campaign, step Step) {
	w := a.world
	if q := step.Lease.Sync.InForce; w.sabotage.narrowTake && len(q) > 0 && len(q[0].Standbys) > 1 {
		q[0].Standbys = slices.DeleteFunc(q[0].Standbys, func(m string) bool { return m == c.lease.HeldBy() || m == lease.Instance(c.lease.ReleasedBy) })
	}
	a.write(step.Lease, func(result callResult) {
		switch {
		case a.campaign != c && result != callDone:
		case result == callDone:
			a.next = a.world.now
			a.release = 0
		case result == callConflict && step.AgainstRenewals:
			was := c.lease
			a.read(func() {
				if a.campaign == c && a.last.Same(was) {
					step.Lease.Version = a.last.Version
					a.take(c, step)
				}
			})
		default:
			a.drop("the Lease could not be taken")
			a.next = a.world.now
		}
	})
}
