package election

import (
	"time"

	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// branch is one history of the database: what one promotion began.
type branch struct {
	timeline postgres.Timeline
	parent   *branch
	fork     postgres.LSN
	term     int32
}

// holds tells whether data up to at on branch b has what branch other has up to its position.
func (b *branch) holds(at postgres.LSN, other *branch, position postgres.LSN) bool {
	for other.parent != nil && position <= other.fork {
		other = other.parent
	}
	for x, limit := b, at; x != nil; x = x.parent {
		if x == other {
			return position <= limit
		}
		limit = min(limit, x.fork)
	}
	return false
}

// follows tells whether PostgreSQL lets a replica stream from a primary: it compares the numbers of timelines, and
// knows nothing of histories that have the same number.
func follows(replica *branch, at postgres.LSN, primary *branch, primaryAt postgres.LSN) bool {
	for x, end := primary, primaryAt; x != nil; x = x.parent {
		if x.timeline == replica.timeline {
			return at <= end
		}
		end = min(end, x.fork)
	}
	return false
}

// server is an instance's PostgreSQL and its data.
type server struct {
	node *node
	// The data: there is none without a branch. replica: a copy that followed when last used. torn: of no use.
	branch  *branch
	lsn     postgres.LSN
	replica bool
	torn    bool
	// up; primary: it takes writes. run numbers its starts. stopping: no more writes.
	up, primary, stopping bool
	run                   int
	// complete: it has replayed all that it had when it was started.
	complete bool

	// A replica's receiver: of which node, and which connection; 0 is none.
	upstream   int
	connection int

	// A primary's: what commits wait for, how far they are acknowledged, and its replicas.
	quorum    lease.Quorum
	acked     postgres.LSN
	replicas  [maxNodes]int
	flushed   [maxNodes]postgres.LSN
	reloading int
}

// start begins to run as a replica, or goes on as a primary.
func (s *server) start(primary bool) {
	w := s.node.world
	s.run++
	s.up, s.primary, s.stopping, s.complete = true, primary, false, primary
	s.connection, s.acked = 0, 0
	s.replicas = [maxNodes]int{}
	run := s.run
	if primary {
		s.acked = s.lsn // What was found by recovery is visible, and unknown to clients.
		s.acked = min(s.acked, w.acked[s.branch])
		w.note("%s: PostgreSQL takes writes on timeline %d from %v, commits wait for %v", s.node.name, s.branch.timeline, s.lsn, s.quorum)
		s.work(run)
		return
	}
	s.node.atServer(w.between(20*time.Millisecond, 400*time.Millisecond), run, func() { s.complete = true })
}

// stop ends all processes at once.
func (s *server) stop() {
	s.run++
	s.up, s.primary, s.stopping, s.complete = false, false, false, s.complete && s.replica || !s.replica
	s.connection = 0
}

// work has clients commit, and sends the log to replicas.
func (s *server) work(run int) {
	w := s.node.world
	s.node.atServer(w.between(100*time.Millisecond, 400*time.Millisecond), run, func() {
		if !s.stopping {
			s.lsn += postgres.LSN(1 + w.rng.IntN(100))
		}
		s.release()
		for i, connection := range s.replicas {
			if connection != 0 {
				s.push(i, connection)
			}
		}
		s.work(run)
	})
}

// push sends the log to a replica.
func (s *server) push(to, connection int) {
	w, b, lsn, run := s.node.world, s.branch, s.lsn, s.run
	receiver := w.nodes[to].server
	w.send(s.node.id, to, func() {
		w.nodes[to].atServer(0, -1, func() {
			if !receiver.up || receiver.connection != connection {
				return
			}
			receiver.node.messageFrom = s.node.id
			receiver.node.messageAt = w.now
			if lsn > receiver.lsn || receiver.branch != b {
				receiver.branch, receiver.lsn = b, max(lsn, receiver.lsn)
			}
			flushed := receiver.lsn
			w.send(to, s.node.id, func() {
				s.node.atServer(0, run, func() {
					if s.replicas[to] == connection {
						s.flushed[to] = max(s.flushed[to], flushed)
						s.release()
					}
				})
			})
		})
	})
}

// release acknowledges what enough replicas have.
func (s *server) release() {
	if !s.primary {
		return
	}
	upTo := s.lsn
	if s.quorum.Number > 0 {
		upTo = 0
		for i, connection := range s.replicas {
			if connection != 0 && s.covered(s.flushed[i]) {
				upTo = max(upTo, s.flushed[i])
			}
		}
	}
	if upTo = min(upTo, s.lsn); upTo > s.acked {
		s.acked = upTo
		s.node.world.acknowledged(s, upTo)
	}
}

// covered tells whether the quorum has everything up to a position.
func (s *server) covered(position postgres.LSN) bool {
	n := 0
	for _, standby := range s.quorum.Standbys {
		if i := nodeID(standby); s.replicas[i] != 0 && s.flushed[i] >= position {
			n++
		}
	}
	return n >= s.quorum.Number
}

// reload gives PostgreSQL another quorum; its processes take it at some time within a second.
func (s *server) reload(q lease.Quorum) {
	s.reloading++
	reloading := s.reloading
	w := s.node.world
	s.node.atServer(w.between(0, time.Second), s.run, func() {
		if s.reloading == reloading {
			s.quorum = q
			w.note("%s: commits wait for %v, log %v, acknowledged %v", s.node.name, q, s.lsn, s.acked)
			s.release()
		}
	})
}

// connect has a replica ask a primary for the log. answer gets whether it may stream.
func (s *server) connect(to int, answer func(streams bool)) {
	w := s.node.world
	w.number++
	connection := int(w.number)
	s.connection, s.upstream = connection, to
	run, b, lsn := s.run, s.branch, s.lsn
	w.send(s.node.id, to, func() {
		primary := w.nodes[to].server
		w.nodes[to].atServer(0, -1, func() {
			if !primary.up || !primary.primary || primary.stopping {
				return
			}
			streams := follows(b, lsn, primary.branch, primary.lsn)
			if streams {
				if !primary.branch.holds(primary.lsn, b, lsn) {
					w.fail("%s mixes two histories that both have timeline %d", s.node.name, b.timeline)
				}
				primary.replicas[s.node.id], primary.flushed[s.node.id] = connection, lsn
			}
			w.send(to, s.node.id, func() {
				s.node.atServer(0, run, func() {
					if s.connection == connection {
						answer(streams)
					}
				})
			})
		})
	})
}

func (s *server) disconnect() { s.connection = 0 }

// acknowledged is told of every commit that a client believes in, up to a position. It must be part of the history of
// the newest primary. A pod that comes out of a freeze may answer clients before its sentinel looks at the clock; only a
// required quorum is a fence for that, too.
func (w *world) acknowledged(s *server, upTo postgres.LSN) {
	if s.node.thawing && w.setup.mode != modeRequired {
		return
	}
	if w.promoted != nil && s.branch.term < w.promotedTerm &&
		!w.promoted.holds(max(w.promoted.fork, w.promotedNode.server.lsn), s.branch, upTo) {
		w.fail("%s (term %d) acknowledged up to %v after %s was promoted in term %d without that",
			s.node.name, s.branch.term, upTo, w.promotedNode.name, w.promotedTerm)
	}
	if s.quorum.Number > 0 && upTo > s.branch.fork { // What the promoted copy brought along, no client waits for.
		w.acked[s.branch] = max(w.acked[s.branch], upTo)
	}
}

// rename has a primary go on in a newer term.
func (s *server) rename(term int32) {
	s.branch.term = max(s.branch.term, term)
	if w := s.node.world; s.branch == w.promoted {
		w.promotedTerm = s.branch.term
	}
}

// promote begins a new history.
func (s *server) promote(term int32, timeline postgres.Timeline) {
	w := s.node.world
	if w.setup.mode == modeRequired {
		for b, upTo := range w.acked {
			if !s.branch.holds(s.lsn, b, upTo) {
				w.fail("%s is promoted in term %d with timeline %d up to %v, and lacks the commits acknowledged on timeline %d up to %v",
					s.node.name, term, s.branch.timeline, s.lsn, b.timeline, upTo)
			}
		}
	}
	if term <= w.promotedTerm {
		w.fail("%s is promoted in term %d after %s in term %d", s.node.name, term, w.promotedNode.name, w.promotedTerm)
	}
	w.count("promotions")
	s.branch = &branch{timeline: timeline, parent: s.branch, fork: s.lsn, term: term}
	w.promoted, w.promotedTerm, w.promotedNode = s.branch, term, s.node
	s.replica = false
}
