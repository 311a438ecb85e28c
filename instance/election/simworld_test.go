package election

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// world is a simulated cluster: instances, an API server and a network, with a clock of its own. Everything that
// happens is an event, and the order of all events follows from the seed.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	events eventHeap
	number uint64

	setup    setup
	rules    Rules
	members  []string
	api      apiServer
	nodes    []*node
	network  network
	sabotage sabotage

	// acked is how much of each history was acknowledged under a required quorum, or of an asynchronous one by whom.
	acked map[*branch]postgres.LSN
	// promoted is the history of the instance that was promoted in the newest term.
	promoted     *branch
	promotedNode *node
	promotedTerm int32
	elections    int
	fences       int
	healed       bool

	problem string
	trace   func(string)
	seen    tally
}

// setup is what a schedule begins with.
type setup struct {
	size, number int
	mode         mode
	// apiOnly: nothing but the API server has faults.
	apiOnly bool
}

type mode int

const (
	modeAsync mode = iota
	modePreferred
	modeRequired
)

func (m mode) String() string { return [...]string{"async", "preferred", "required"}[m] }

type event struct {
	at     time.Duration
	number uint64
	do     func()
}

// eventHeap is a binary heap by time, and by number at the same time.
type eventHeap []event

func (h eventHeap) less(a, b int) bool {
	return h[a].at < h[b].at || h[a].at == h[b].at && h[a].number < h[b].number
}

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		(*h)[i], (*h)[parent] = (*h)[parent], (*h)[i]
		i = parent
	}
}

func (h *eventHeap) pop() event {
	old := *h
	first := old[0]
	last := len(old) - 1
	old[0] = old[last]
	old[last] = event{}
	*h = old[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		old[i], old[least] = old[least], old[i]
		i = least
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.number++
	w.events.push(event{at: w.now + d, number: w.number, do: do})
}

// run goes on until a time, or until something is wrong.
func (w *world) run(until time.Duration) {
	for w.problem == "" && len(w.events) > 0 && w.events[0].at <= until {
		e := w.events.pop()
		w.now = e.at
		e.do()
	}
	w.now = max(w.now, until)
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf(format, args...)
		w.note("PROBLEM: %s", w.problem)
	}
}

func (w *world) note(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%9.3f ", w.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

// count notes that something happened.
func (w *world) count(what string) {
	if w.seen != nil {
		w.seen[what]++
	}
}

// between is a random time.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

// chance is true one time in n.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

const (
	maxNodes = 5
	// toAPI is the API server's place in the network.
	toAPI = maxNodes
)

// network loses, delays, repeats and reorders messages while it has a fault.
type network struct {
	cut   [maxNodes + 1][maxNodes + 1]bool
	lossy int
	slow  [maxNodes + 1]bool
}

// send carries a message; do happens at its arrival. A repeated message arrives again later.
func (w *world) send(from, to int, do func()) {
	n := &w.network
	if n.cut[from][to] || n.lossy > 0 && w.chance(n.lossy) {
		return
	}
	delay := w.between(200*time.Microsecond, 2*time.Millisecond)
	if n.slow[from] || n.slow[to] {
		delay += w.between(0, 3*time.Second)
	}
	w.after(delay, do)
	if n.lossy > 0 && w.chance(8) {
		w.after(delay+w.between(0, 2*time.Second), do)
	}
}

// apiServer keeps the Lease.
type apiServer struct {
	down    bool
	lease   lease.Lease
	version int
	// past is the Lease as each term began.
	past []lease.Lease
}

// store writes the Lease by compare-and-swap.
func (w *world) store(l lease.Lease) (lease.Lease, bool) {
	a := &w.api
	if l.Version != a.lease.Version {
		return lease.Lease{}, false
	}
	if l.Term < a.lease.Term {
		w.fail("the term went back from %d to %d", a.lease.Term, l.Term)
	}
	if l.Holder != a.lease.Holder && l.Holder != "" && l.Term <= a.lease.Term {
		w.fail("%s took the Lease in term %d, which is not new", l.Holder, l.Term)
	}
	if l.Holder != a.lease.Holder || l.Term != a.lease.Term {
		w.note("API: %q holds the Lease, term %d, sync %q, members %v, released %v by %q for %q", l.Holder, l.Term, l.Sync, l.Members,
			l.Released, l.ReleasedBy, l.Successor)
		switch {
		case l.Holder == "":
			w.count("releases")
		case l.HeldBy() != a.lease.HeldBy():
			w.elections++
			w.count("takeovers")
		}
	} else if !l.Sync.Equal(a.lease.Sync) {
		w.note("API: sync %q", l.Sync)
	}
	if l.Term != a.lease.Term {
		a.past = append(a.past, l)
	}
	a.version++
	l.Version = strconv.Itoa(a.version)
	a.lease = l
	return l, true
}

// callResult is how a call of the API server ended.
type callResult int

const (
	callDone callResult = iota
	callConflict
	callFailed
)

// call sends a request of a node to the API server; done gets the answer, or that there was none in time. A request
// may be carried out though its answer is lost, or after its sender gave up.
func (w *world) call(from *node, write *lease.Lease, done func(callResult, lease.Lease)) {
	agent := from.agent
	answered := false
	answer := func(result callResult, l lease.Lease) {
		from.atAgent(agent, func() {
			if !answered {
				answered = true
				done(result, l)
			}
		})
	}
	w.send(from.id, toAPI, func() {
		if w.api.down {
			w.send(toAPI, from.id, func() { answer(callFailed, lease.Lease{}) })
			return
		}
		result, l := callDone, w.api.lease
		if write != nil {
			written, ok := w.store(*write)
			if l = written; !ok {
				result = callConflict
			}
		}
		w.send(toAPI, from.id, func() { answer(result, l) })
	})
	w.after(agent.rules.LeaseDuration/6, func() { answer(callFailed, lease.Lease{}) })
}
