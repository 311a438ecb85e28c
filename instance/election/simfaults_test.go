package election

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// sabotage breaks one rule each, to see that the simulation finds out.
type sabotage struct {
	fewerVotes, forgetPromises, stayAttached, lateFence, ignoreRefusals, noJoint, unsettled, anyTimeline, releaseLate, noDoubt bool
	forgetHolds, impatient, narrowTake, blind, anyBranch                                                                       bool
}

const leaseDuration = 6 * time.Second

// newWorld is a cluster that runs: db-0 leads, the others stream.
func newWorld(seed uint64, s sabotage, trace func(string)) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0)), trace: trace, sabotage: s, acked: map[*branch]postgres.LSN{}}
	w.setup.size = [...]int{1, 2, 3, 3, 3, 3, 5, 5}[w.rng.IntN(8)]
	w.setup.mode = [...]mode{modeAsync, modePreferred, modeRequired, modeRequired}[w.rng.IntN(4)]
	w.setup.number = 1
	if w.setup.size > 2 && w.chance(3) {
		w.setup.number = 2
	}
	w.setup.apiOnly = w.chance(10)
	w.now = time.Second
	w.rules = Rules{LeaseDuration: leaseDuration, Suspicion: 1500 * time.Millisecond, MaxLag: 1 << 40, Enabled: true}
	if w.setup.mode != modeAsync {
		w.rules.Number, w.rules.Required = w.setup.number, w.setup.mode == modeRequired
	}
	first := &branch{timeline: 1, term: 1}
	w.promoted, w.promotedTerm = first, 1
	for id := range maxNodes {
		n := &node{world: w, id: id, name: nodeName(id), seen: 1, removed: id >= w.setup.size}
		n.server = &server{node: n}
		w.nodes = append(w.nodes, n)
		if !n.removed {
			n.server.branch, n.server.lsn, n.server.replica, n.server.complete = first, 1000, id > 0, true
			w.members = append(w.members, n.name)
		}
	}
	w.promotedNode = w.nodes[0]
	w.nodes[0].led = 1
	w.rules.Members = w.members
	l := lease.Lease{Holder: "db-0_0", Term: 1, SystemID: "7", Timeline: 1, Newest: 1, WALLSN: 1000, Members: w.members, Duration: leaseDuration, Version: "0"}
	l.Sync = w.rules.SyncWhenTaken("db-0", l)
	w.api.lease = l
	for _, n := range w.nodes {
		n.boot()
	}
	return w
}

// start lets the cluster settle before faults begin.
func (w *world) start() bool { return w.settle(20 * time.Second) }

// settled tells whether one primary serves, and all others follow it.
func (w *world) settled() bool {
	l := w.api.lease
	if l.Holder == "" {
		return false
	}
	leader := w.nodes[nodeID(l.HeldBy())]
	if leader.agent == nil || leader.agent.identity != l.Holder || !leader.agent.holding || !leader.server.primary ||
		!leader.agent.licensed() || leader.agent.last.Term != l.Term {
		return false
	}
	for _, n := range w.nodes {
		if n == leader || !slices.Contains(w.members, n.name) {
			continue
		}
		if n.server.connection == 0 || leader.server.replicas[n.id] != n.server.connection {
			return false
		}
	}
	if w.setup.mode == modeRequired && w.setup.size > 1 {
		return l.Sync.Required && leader.server.acked+500 >= leader.server.lsn
	}
	return true
}

// settle runs until the cluster is settled, within a time.
func (w *world) settle(within time.Duration) bool {
	for end := w.now + within; w.now < end; {
		w.run(w.now + 250*time.Millisecond)
		if w.problem != "" {
			return false
		}
		if w.settled() {
			return true
		}
	}
	return false
}

// schedule runs one schedule to its end, and says what was wrong.
func (w *world) schedule() string {
	w.note("%d instances, %s, number %d, only the API server fails: %t", w.setup.size, w.setup.mode, w.setup.number, w.setup.apiOnly)
	if !w.start() {
		w.fail("the cluster does not begin")
		return w.problem
	}
	elections, fences := w.elections, w.fences
	for range 1 + w.rng.IntN(6) {
		if w.setup.apiOnly {
			w.apiFault()
		} else {
			w.fault()
		}
		w.run(w.now + w.between(0, 4*time.Second))
		if w.problem != "" {
			return w.problem
		}
	}
	w.heal()
	if !w.settle(90 * time.Second) {
		w.fail("no primary serves all others long after the last fault")
	}
	if w.problem == "" && w.setup.apiOnly && (w.elections > elections || w.fences > fences) {
		w.fail("%d elections and %d fences, though only the API server failed", w.elections-elections, w.fences-fences)
	}
	return w.problem
}

// apiFault has the API server fail for all alike: nothing else is touched.
func (w *world) apiFault() {
	lasts := w.between(time.Second, 40*time.Second)
	switch w.rng.IntN(3) {
	case 0:
		w.note("the API server is down for %v", lasts)
		w.api.down = true
		w.after(lasts, func() { w.api.down = false })
	case 1:
		w.note("the API server is slow for %v", lasts)
		w.network.slow[toAPI] = true
		w.after(lasts, func() { w.network.slow[toAPI] = false })
	case 2:
		id := w.rng.IntN(w.setup.size)
		w.note("%s gets no answers from the API server for %v", nodeName(id), lasts)
		w.network.cut[toAPI][id] = true
		w.after(lasts, func() { w.network.cut[toAPI][id] = false })
	}
}

// fault makes something break.
func (w *world) fault() {
	n := w.nodes[w.rng.IntN(w.setup.size)]
	if w.chance(2) {
		n = w.nodes[nodeID("x"+w.primaryName())]
	}
	last := w.between(100*time.Millisecond, 15*time.Second)
	switch w.rng.IntN(20) {
	case 16, 17:
		w.partition(last)
	case 18:
		w.change()
	case 19:
		w.meddle()
	case 0, 1:
		w.apiFault()
	case 2, 3:
		to := w.rng.IntN(maxNodes + 1)
		both := w.chance(2)
		w.note("no message from %s to %d for %v, both ways: %t", n.name, to, last, both)
		w.cut(n.id, to, true)
		if both {
			w.cut(to, n.id, true)
		}
		w.after(last, func() {
			w.cut(n.id, to, false)
			if both {
				w.cut(to, n.id, false)
			}
		})
	case 4, 5:
		w.note("%s is cut off for %v", n.name, last)
		api := w.chance(2)
		for to := range maxNodes + 1 {
			if to != toAPI || api {
				w.cut(n.id, to, true)
				w.cut(to, n.id, true)
			}
		}
		w.after(last, func() {
			for to := range maxNodes + 1 {
				w.cut(n.id, to, false)
				w.cut(to, n.id, false)
			}
		})
	case 6:
		w.note("the network loses and repeats messages for %v", last)
		w.network.lossy = 2 + w.rng.IntN(5)
		w.after(last, func() { w.network.lossy = 0 })
	case 7:
		w.note("%s has a slow network for %v", n.name, last)
		w.network.slow[n.id] = true
		w.after(last, func() { w.network.slow[n.id] = false })
	case 8, 9:
		if n.server.up {
			w.note("%s: PostgreSQL is killed", n.name)
			n.killedAt = w.now
			n.server.stop()
		}
	case 10, 11:
		n.crash()
		w.after(w.between(300*time.Millisecond, 10*time.Second), n.boot)
	case 12:
		n.freeze(false)
		w.after(last, n.thaw)
	case 13:
		n.freeze(true)
		w.after(last, n.thaw)
	case 14:
		if w.chance(3) {
			w.note("power cut")
			for _, m := range w.nodes {
				m.crash()
				w.after(w.between(300*time.Millisecond, 10*time.Second), m.boot)
			}
			return
		}
		target := nodeName(w.rng.IntN(w.setup.size))
		if leader := w.nodes[nodeID("x"+w.primaryName())]; leader.agent != nil && leader.name != target {
			w.note("%s is to hand over to %s", leader.name, target)
			leader.agent.handover = target
		}
	case 15:
		w.change()
	}
}

func (w *world) primaryName() string {
	if name := w.api.lease.HeldBy(); name != "" {
		return name
	}
	return "db-0"
}

// partition splits the network in two; the API server is on one side, or on both.
func (w *world) partition(last time.Duration) {
	side := w.rng.IntN(1 << (maxNodes + 1))
	api := w.chance(2)
	w.note("partition %06b, also of the API server: %t, for %v", side, api, last)
	set := func(cut bool) {
		for from := range maxNodes + 1 {
			for to := range maxNodes + 1 {
				if side>>from&1 != side>>to&1 && (api || from != toAPI && to != toAPI) {
					w.cut(from, to, cut)
				}
			}
		}
	}
	set(true)
	w.after(last, func() { set(false) })
}

// meddle has somebody clear the Lease's holder, or delete the Lease, which the operator makes anew, or restore the API
// server's data from an old copy after a while without it. The latter two take away what an election is about: they are
// not done while one goes on, or while somebody who runs does not know of the last one yet.
func (w *world) meddle() {
	switch l := w.api.lease; w.rng.IntN(3) {
	case 0:
		w.note("the Lease's holder is cleared")
		l.Holder = ""
		w.overwrite(l)
	case 1:
		if w.agreed() {
			w.note("the Lease is made anew")
			w.overwrite(lease.Lease{})
		}
	case 2:
		w.note("the API server is down until an old copy is restored")
		w.api.down = true
		w.after(w.between(leaseDuration, 4*leaseDuration), func() {
			w.api.down = false
			if len(w.api.past) > 0 && w.agreed() {
				w.overwrite(w.api.past[w.rng.IntN(len(w.api.past))])
			}
		})
	}
}

// agreed tells whether every instance knows of the newest term, and its winner serves.
func (w *world) agreed() bool {
	for _, n := range w.nodes {
		if !n.removed && n.seen != w.api.lease.Term {
			return false
		}
	}
	return w.api.lease.Holder != "" && w.promotedTerm == w.api.lease.Term
}

// overwrite has the Lease say something else, whatever it said before.
func (w *world) overwrite(l lease.Lease) {
	w.note("API: %q holds the Lease, term %d", l.Holder, l.Term)
	w.api.version++
	l.Version = strconv.Itoa(w.api.version)
	w.api.lease = l
}

// change has the owner change the cluster.
func (w *world) change() {
	switch w.rng.IntN(4) {
	case 3:
		n := w.nodes[w.setup.size-1]
		if w.setup.size < 3 || n.name == w.primaryName() {
			return
		}
		w.note("%s is removed", n.name)
		w.setup.size--
		w.members = append([]string{}, w.members[:w.setup.size]...)
		w.rules.Members = w.members
		w.after(w.between(0, 5*time.Second), func() { w.remove(n) })
	case 0:
		w.rules.LeaseDuration = [...]time.Duration{5 * time.Second, 6 * time.Second, 10 * time.Second}[w.rng.IntN(3)]
		w.note("the Lease's duration is to be %v", w.rules.LeaseDuration)
	case 1:
		if w.setup.mode != modeAsync && len(w.members) > 2 {
			w.rules.Number = 3 - w.rules.Number
			w.note("commits are to wait for %d", w.rules.Number)
		}
	case 2:
		if n := w.nodes[min(w.setup.size, maxNodes-1)]; w.setup.size < maxNodes && w.setup.size > 1 {
			w.setup.size++
			n.removed = false
			w.members = append(append([]string{}, w.members...), n.name)
			w.rules.Members = w.members
			w.note("%s is added", n.name)
			n.boot()
		}
	}
}

// remove takes a pod and its volume away, once the Lease does not name the instance.
func (w *world) remove(n *node) {
	l := w.api.lease
	switch {
	case slices.Contains(w.members, n.name): // It is wanted again.
	case l.Term == 0 || slices.Contains(l.Members, n.name) || l.Sync.Names(n.name) || l.HeldBy() == n.name || l.Holder == "":
		w.after(time.Second, func() { w.remove(n) })
	default:
		w.note("%s is gone", n.name)
		n.crash()
		n.removed, n.server = true, &server{node: n, run: n.server.run + 1}
		n.promised, n.led, n.seen = 0, 0, 0
	}
}

func (w *world) cut(from, to int, cut bool) { w.network.cut[from][to] = cut && from != to }

// heal ends all faults.
func (w *world) heal() {
	w.note("all faults end")
	w.healed = true
	w.api.down = false
	w.network = network{}
	for _, n := range w.nodes {
		n.thaw()
		n.boot()
	}
}
