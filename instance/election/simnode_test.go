package election

import (
	"strconv"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// node is an instance's pod: an agent, its PostgreSQL, its sentinel, and a disk.
type node struct {
	world  *world
	id     int
	name   string
	agent  *agent // nil while no container runs
	server *server
	starts int

	// On the disk, beside the data.
	promised, led, seen int32

	// frozenAgent: only the agent does nothing; frozenPod: nothing of the pod does. later is what happens then.
	frozenAgent, frozenPod bool
	later                  []func()
	// thawing: the pod goes on, and its sentinel did not look yet.
	thawing bool
	// removed: the instance is not wanted any more, and its pod is gone.
	removed bool

	// licence is the end that the sentinel goes by.
	licence  time.Duration
	watching bool

	killedAt time.Duration

	// The last message of a primary.
	messageFrom int
	messageAt   time.Duration
}

func nodeName(id int) string { return "db-" + strconv.Itoa(id) }

func nodeID(name string) int { return int(name[len(name)-1] - '0') }

// atAgent has the node's agent do something now, or when it is thawed; never if it was restarted.
func (n *node) atAgent(a *agent, do func()) {
	if n.agent != a || a == nil {
		return
	}
	if n.frozenAgent || n.frozenPod {
		n.later = append(n.later, func() { n.atAgent(a, do) })
		return
	}
	do()
}

// agentAfter is atAgent after some time.
func (n *node) agentAfter(d time.Duration, do func()) {
	a := n.agent
	n.world.after(d, func() { n.atAgent(a, do) })
}

// atServer has the node's PostgreSQL do something after some time, unless it was stopped since; run -1 is any run.
func (n *node) atServer(d time.Duration, run int, do func()) {
	if d > 0 {
		n.world.after(d, func() { n.atServer(0, run, do) })
		return
	}
	s := n.server
	if run >= 0 && s.run != run {
		return
	}
	if n.frozenPod {
		n.later = append(n.later, func() { n.atServer(0, run, do) })
		return
	}
	do()
}

// license tells the sentinel.
func (n *node) license(end time.Duration) {
	n.licence = end
	n.sentinel()
}

// sentinel stops a primary whose licence is over.
func (n *node) sentinel() {
	if n.watching || n.licence == Unlimited || n.server == nil || !n.server.primary {
		return
	}
	n.watching = true
	n.world.after(max(0, n.licence-n.world.now), n.sentinelLooks)
}

func (n *node) sentinelLooks() {
	n.watching = false
	switch {
	case n.frozenPod: // It looks again when it is thawed.
	case !n.server.primary:
	case n.world.now >= n.licence:
		n.fence("its licence is over")
	default:
		n.sentinel()
	}
}

func (n *node) fence(why string) {
	if n.server.primary {
		n.world.note("%s: fenced, because %s", n.name, why)
		n.world.fences++
		n.world.count("fences")
		n.server.stop()
	}
}

// boot starts the container: an agent that knows what is on the disk.
func (n *node) boot() {
	if n.agent != nil || n.removed {
		return
	}
	w := n.world
	n.starts++
	a := &agent{node: n, world: w, identity: lease.Identity(n.name, strconv.Itoa(n.starts)), rules: w.rules}
	a.watch = NewWatch(n.name, a.rules, max(n.promised, n.seen, n.led))
	a.voter = NewVoter(a.watch, n.promised)
	n.agent, n.licence = a, 0
	n.later = nil
	w.note("%s: starts as %s", n.name, a.identity)
	a.loop()
}

// crash ends all of the container.
func (n *node) crash() {
	if n.agent == nil {
		return
	}
	n.world.note("%s: crashes", n.name)
	n.agent = nil
	n.frozenAgent, n.frozenPod, n.thawing = false, false, false
	n.server.stop()
	if n.server.torn {
		n.server.complete = false
	}
}

func (n *node) freeze(pod bool) {
	n.world.note("%s: freezes, pod %t", n.name, pod)
	if pod {
		n.frozenPod = true
	} else {
		n.frozenAgent = true
	}
}

func (n *node) thaw() {
	if !n.frozenAgent && !n.frozenPod {
		return
	}
	w := n.world
	w.note("%s: thaws", n.name)
	if n.frozenPod && n.server.primary && w.now >= n.licence {
		n.thawing = true
		w.after(w.between(0, 250*time.Millisecond), func() {
			if n.thawing {
				n.thawing = false
				n.sentinelLooks()
			}
		})
	}
	n.frozenAgent, n.frozenPod = false, false
	if !n.thawing && !n.watching {
		n.sentinel()
	}
	later := n.later
	n.later = nil
	for _, do := range later {
		do()
	}
}

// standing and vote are what the agent knows of its data.
func (a *agent) standing() Standing {
	s := a.node.server
	return Standing{SystemID: a.systemID(), Complete: s.branch != nil && !s.torn && s.complete, Leading: s.primary || a.holding || a.starting}
}

func (a *agent) systemID() string {
	if a.node.server.branch == nil {
		return ""
	}
	return "7"
}

func (a *agent) ballot() Vote {
	s := a.node.server
	v := Vote{
		Instance: a.node.name, Incarnation: strconv.Itoa(a.node.starts), SystemID: a.systemID(), Complete: a.standing().Complete,
		Promised: a.node.promised, LedTerm: a.node.led, SeenTerm: a.node.seen, Detached: s.connection == 0 && !s.primary,
	}
	if s.branch != nil {
		// The timeline is that of the log at the position.
		b := s.branch
		for b.parent != nil && s.lsn <= b.fork {
			b = b.parent
		}
		v.Timeline, v.Received = b.timeline, s.lsn
	}
	return v
}

// vote answers a candidate: decide, write the promise, detach, answer.
func (a *agent) vote(r VoteRequest, answer func(Vote)) {
	n := a.node
	grant, refusal := a.voter.Consider(a.world.now, r, a.standing())
	if !grant || r.Probe {
		v := a.ballot()
		v.Granted, v.Refusal = grant, refusal
		answer(v)
		return
	}
	n.agentAfter(a.world.between(2*time.Millisecond, 30*time.Millisecond), func() {
		if !a.world.sabotage.forgetPromises {
			n.promised = max(n.promised, r.Term)
		}
		n.seen = max(n.seen, r.Term)
		n.agentAfter(a.world.between(time.Millisecond, 100*time.Millisecond), func() {
			if !a.world.sabotage.stayAttached {
				n.server.disconnect()
			}
			v := a.ballot()
			v.Granted = !n.server.torn
			if a.world.sabotage.stayAttached || a.world.sabotage.forgetPromises {
				v.Detached, v.Promised = true, max(v.Promised, r.Term)
			}
			a.world.note("%s: votes for %s against term %d, has timeline %d up to %v", n.name, r.Candidate, r.Term, v.Timeline, v.Received)
			answer(v)
		})
	})
}
