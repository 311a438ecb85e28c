package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// simulated is a cluster in which everything that agents decide happens, or fails, in any order.
type simulated struct {
	lease     lease.Lease
	version   int
	service   agent.Endpoint
	config    contract.Config
	instances []*simulatedInstance
	// stale still run though their pods were deleted by force, and made again under the same names.
	stale        []*simulatedInstance
	incarnations int
	bootstraps   int
	// writer is where the newest data is.
	writer string
	// expired: the Lease was not renewed for so long that its last holder may not write any more.
	expired bool
	// acknowledged is how many commits clients were told of.
	acknowledged int
}

type simulatedInstance struct {
	facts    agent.Facts
	stale    bool
	decision agent.Decision
	// astray: its data has what the primary does not.
	astray bool
	// stubborn: a rewind does not change that.
	stubborn bool
	// commits it has.
	commits int
	// unlicensed: it may not lead before it renewed the Lease.
	unlicensed bool
	// seen is the last term that its volume knows of.
	seen int32
}

func newSimulated(count int, failover bool) *simulated {
	s := &simulated{config: contract.Config{Version: "17", FailoverEnabled: failover}}
	for ordinal := range count {
		s.config.Members = append(s.config.Members, "db-"+strconv.Itoa(ordinal))
	}
	s.lease.Version = "0"
	for _, member := range s.config.Members {
		i := &simulatedInstance{facts: agent.Facts{Self: member, Data: agent.Data{Known: true}}}
		s.instances = append(s.instances, i)
		s.restartAgent(i)
	}
	return s
}

// restartAgent is a new container: nothing runs, and only the volume stays.
func (s *simulated) restartAgent(i *simulatedInstance) {
	s.incarnations++
	config := s.config
	i.facts = agent.Facts{
		Self: i.facts.Self, Incarnation: strconv.Itoa(s.incarnations), Data: i.facts.Data, Config: &config,
		Programs: postgres.ServerVersion{Major: "17", Full: "17.1"}, LedTerm: i.facts.LedTerm,
	}
	i.decision = agent.Decision{}
}

// replacePod makes another pod for an instance, whose agent finds the volume as it was, and leaves the old one running.
func (s *simulated) replacePod(i *simulatedInstance) {
	later := &simulatedInstance{
		facts: agent.Facts{Self: i.facts.Self, Data: i.facts.Data, LedTerm: i.facts.LedTerm}, astray: i.astray, commits: i.commits, seen: i.seen,
	}
	s.restartAgent(later)
	s.instances[slices.Index(s.instances, i)] = later
	s.stale = append(s.stale, i)
	i.stale = true
}

func (s *simulated) all() []*simulatedInstance { return slices.Concat(s.instances, s.stale) }

func (i *simulatedInstance) identity() string {
	return lease.Identity(i.facts.Self, i.facts.Incarnation)
}

// look shows an agent what the API server has.
func (s *simulated) look(i *simulatedInstance) {
	config := s.config
	i.facts.Config = &config
	i.facts.Lease, i.facts.LeaseKnown = s.lease, true
	i.seen = max(i.seen, s.lease.Term)
	if s.lease.Holder == i.identity() {
		i.facts.HeldTerm, i.facts.Licensed = s.lease.Term, true
		if i.facts.Data.Primary() {
			i.facts.LedTerm = s.lease.Term
		}
	} else if s.lease.Holder != "" {
		i.facts.Licensed = false
	}
	i.facts.Primary = s.service
	i.facts.Challenge = agent.Challenge{Due: s.expired, Free: true, Reason: "the Lease is free"}
	i.facts.Unclaimed = s.lease.Holder == ""
}

// observe shows an agent how its server does.
func (s *simulated) observe(i *simulatedInstance) {
	server := &i.facts.Server
	if !server.Up {
		return
	}
	server.Accepting, server.Recovering = true, server.Replica
	primary := s.find(s.service.Instance)
	server.Streaming = server.Replica && primary != nil && primary.facts.Server.Up && !primary.facts.Server.Replica && !i.astray
	if server.Streaming {
		i.facts.Repairs = agent.Repairs{}
		i.commits = primary.commits
	}
	server.Silent = server.Replica && !server.Streaming
}

// renew shows an agent whether it still holds the Lease.
func (s *simulated) renew(i *simulatedInstance) {
	if s.lease.Holder == i.identity() {
		s.write(s.lease)
	}
	s.look(i)
	i.unlicensed = false
}

func (s *simulated) find(name string) *simulatedInstance {
	for _, i := range s.instances {
		if i.facts.Self == name {
			return i
		}
	}
	return nil
}

// step lets an agent decide, and does at once what it decided; fails makes that fail.
func (s *simulated) step(t *rapid.T, i *simulatedInstance, fails bool) {
	if i.unlicensed {
		s.renew(i)
	}
	i.decision = agent.Decide(i.facts)
	d := i.decision
	if server := i.facts.Server; server.Up && !server.Replica && !i.facts.Licensed && d.Do != agent.TaskFence {
		t.Fatalf("%s goes on as the primary without a licence", i.identity())
	}
	if d.Serve && s.lease.HeldBy() == i.facts.Self && !i.stale {
		s.service = agent.Endpoint{Instance: i.facts.Self, Address: "10.0.0.1", Port: 5432}
	}
	if d.Serve && i.stale {
		i.facts.Replaced = true // So it is told when it tries.
	}
	if d.Do == agent.TaskNone {
		// Time passes.
		i.facts.Failed.Waiting, i.facts.Repairs.Waiting = false, false
		if i.facts.Diagnosis.Verdict == agent.VerdictStream {
			i.facts.Diagnosis = agent.Diagnosis{}
		}
		return
	}
	if d.Do == agent.TaskTake || d.Do == agent.TaskElect {
		i.mayTake(t, d.Do)
		// The API server tells whether the pod was replaced.
		i.facts.Replaced = i.stale
		fails = fails || i.stale
	}
	if fails && d.Do != agent.TaskFence {
		i.facts.Failed = agent.Failure{Task: d.Do, Message: "it was made to fail", Count: i.facts.Failed.Count + 1, Waiting: true}
		if d.Do == agent.TaskRewind {
			// As pg.Volume.Rewind leaves it.
			i.facts.Data.Torn, i.facts.Data.Replica = true, false
		}
		return
	}
	i.facts.Failed = agent.Failure{}
	s.carryOut(t, i, d)
}

// mayTake is what must hold of who takes the Lease.
func (i *simulatedInstance) mayTake(t *rapid.T, task agent.Task) {
	f := i.facts
	if f.Data.Torn {
		t.Fatalf("%s takes the Lease with torn data", f.Self)
	}
	if f.HeldTerm > 0 && f.Lease.HeldBy() == f.Self {
		t.Fatalf("%s takes the Lease back from a later incarnation", i.identity())
	}
	if task == agent.TaskTake && f.HeldTerm > 0 && f.Lease.Term > f.HeldTerm {
		t.Fatalf("%s takes the Lease that another one held since", i.identity())
	}
}

// elect holds an election whose evidence is as good as can be: an instance wins if it has every acknowledged commit, and
// nobody else who could have taken part has more.
func (s *simulated) elect(i *simulatedInstance) {
	if !s.expired || i.facts.Data.Torn || !i.facts.Data.Present || i.astray {
		return
	}
	known := s.lease.Term
	for _, other := range s.instances {
		known = max(known, other.seen)
	}
	if i.commits < s.acknowledged {
		return
	}
	for _, other := range s.instances {
		if !i.facts.Data.Replica && !other.facts.Data.Replica && i.facts.LedTerm < other.facts.LedTerm {
			return
		}
		if other.facts.Data.Replica && !other.astray && other.commits > i.commits {
			return
		}
	}
	next := s.lease.Taken(i.identity())
	next.Term, next.SystemID = known+1, i.facts.Data.SystemID
	s.config.SystemID = next.SystemID // As the operator learns it.
	s.write(next)
	s.writer = i.facts.Self
	i.facts.Elected = next.Term
}

// commit has clients write to the primary; with a replica that has the commit, too, it is acknowledged.
func (s *simulated) commit() {
	primary := s.find(s.service.Instance)
	if primary == nil || !primary.writes() || s.lease.Holder != primary.identity() || s.expired {
		return
	}
	primary.commits++
	for _, i := range s.instances {
		if s.observe(i); i.facts.Server.Streaming {
			s.acknowledged = primary.commits
			return
		}
	}
}

func (i *simulatedInstance) writes() bool {
	server := i.facts.Server
	return server.Up && server.Accepting && !server.Recovering && !server.Replica
}

func (s *simulated) carryOut(t *rapid.T, i *simulatedInstance, d agent.Decision) {
	f := &i.facts
	primary := s.find(d.Follow)
	alive := primary != nil && primary.facts.Server.Up && !primary.facts.Server.Replica
	switch d.Do {
	case agent.TaskTake:
		if f.Lease.Version == s.lease.Version {
			next := f.Lease.Taken(i.identity())
			next.Term = max(next.Term, i.seen+1)
			s.write(next)
		}
		s.look(i)
	case agent.TaskElect:
		s.elect(i)
		s.look(i)
	case agent.TaskPromote:
		if i.commits < s.acknowledged && s.lease.Holder == i.identity() {
			t.Fatalf("%s becomes the primary with %d of %d acknowledged commits", f.Self, i.commits, s.acknowledged)
		}
		f.Data.Replica, f.Server.Replica, f.Server.Accepting = false, false, false
		f.LedTerm, f.Provisioned = f.Lease.Term, false
		for _, other := range s.instances {
			other.astray = other.astray || other.commits > i.commits
		}
	case agent.TaskRelease:
		if s.lease.Holder == i.identity() {
			l := s.lease
			l.Holder = ""
			s.write(l)
			s.expired = true // So the holder says.
		}
		s.look(i)
	case agent.TaskBootstrap:
		s.bootstraps++
		f.Data = agent.Data{Known: true, Major: "17", Timeline: 1, Data: lease.Data{Present: true, SystemID: fmt.Sprint(s.bootstraps)}}
		s.writer, f.LedTerm = f.Self, f.Lease.Term
	case agent.TaskStartPrimary:
		if !f.Data.Present || f.Data.Replica || f.Data.Torn {
			t.Fatalf("%s starts as the primary with %+v", f.Self, f.Data)
		}
		f.Server = agent.Server{Up: true, Timeline: 1}
		f.Provisioned, f.LedTerm = false, f.Lease.Term
	case agent.TaskStartReplica:
		if !f.Data.Present || f.Data.Torn {
			t.Fatalf("%s starts as a replica with %+v", f.Self, f.Data)
		}
		if f.Data.Primary() && !f.Outdated() && f.Primary.Instance != d.Follow {
			t.Fatalf("%s gives up a primary's data for %s, which does not serve", f.Self, d.Follow)
		}
		f.Data.Replica = true
		f.Server = agent.Server{Up: true, Replica: true, Timeline: 1}
	case agent.TaskProvision:
		f.Provisioned, f.ProvisionDue = true, false
		l := s.lease
		if l.Holder == i.identity() {
			l.SystemID = f.Data.SystemID
			s.write(l)
			s.config.SystemID = f.Data.SystemID
		}
	case agent.TaskConfigure:
		f.Configured = true
	case agent.TaskDiagnose:
		if alive {
			f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictStream}
			if i.astray {
				f.Diagnosis.Verdict = agent.VerdictRewind
			}
		}
	case agent.TaskClone, agent.TaskRewind:
		if s.writer == f.Self && !alive && !i.stale {
			t.Fatalf("%s throws away the only good data", f.Self)
		}
		if f.Server.Up {
			t.Fatalf("%s replaces the data under a running server", f.Self)
		}
		if d.Do == agent.TaskClone && f.Repairs.Waiting {
			t.Fatalf("%s clones again at once", f.Self)
		}
		if alive {
			f.Data = primary.facts.Data
			f.Data.Replica = true
			i.commits = primary.commits
			f.Diagnosis = agent.Diagnosis{}
			if d.Do == agent.TaskClone {
				i.astray, i.stubborn = false, false
				f.Repairs = agent.Repairs{Clones: f.Repairs.Clones + 1, Waiting: true}
			} else {
				i.astray = i.stubborn
				f.Repairs.Rewinds++
			}
		}
	case agent.TaskStop, agent.TaskFence, agent.TaskRestart:
		f.Server = agent.Server{}
	}
}

func (s *simulated) write(l lease.Lease) {
	s.version++
	l.Version = strconv.Itoa(s.version)
	s.lease, s.expired = l, false
}

// check is what must hold at any time.
func (s *simulated) check(t *rapid.T) {
	writers := 0
	for _, i := range s.instances {
		if i.writes() {
			writers++
		}
	}
	if writers > 1 {
		t.Fatalf("%d instances take writes", writers)
	}
	if s.bootstraps > 1 {
		t.Fatalf("%d databases were made", s.bootstraps)
	}
}

// settle leaves the agents alone until every instance takes part and no stale one leads, or tells that they do not.
func (s *simulated) settle(t *rapid.T) bool {
	for range 60 {
		done := true
		s.expire()
		for _, i := range s.all() {
			s.turn(t, i)
			if i.stale {
				done = done && (!i.facts.Server.Up || i.facts.Server.Replica)
			} else {
				done = done && i.decision.State == contract.StateRunning && i.decision.Do == agent.TaskNone
			}
		}
		if done {
			return true
		}
	}
	return false
}

// expire has the Lease's time pass, if its holder does not live any more.
func (s *simulated) expire() {
	lives := func(i *simulatedInstance) bool { return i.identity() == s.lease.Holder }
	if s.lease.Holder != stranger && !slices.ContainsFunc(s.all(), lives) && !slices.ContainsFunc(s.all(), (*simulatedInstance).writes) {
		s.expired = true
	}
}

// turn is what an agent does that is left alone.
func (s *simulated) turn(t *rapid.T, i *simulatedInstance) {
	s.look(i)
	s.observe(i)
	s.step(t, i, false)
	s.check(t)
}

// stranger holds the Lease because somebody wrote so.
const stranger = "bob"

// events happen at random; what is named more than once is likelier.
var events = []string{
	"turn", "turn", "turn", "step", "step", "step", "look", "look", "observe", "observe", "fail", "fail", "kill", "restart", "wipe",
	"astray", "stubborn", "settings", "new Lease", "clear Lease", "stranger", "replace pod", "expire", "late", "commit", "commit", "commit",
}

func (s *simulated) happen(t *rapid.T, event string, i *simulatedInstance) {
	switch event {
	case "turn":
		s.turn(t, i)
	case "step":
		s.step(t, i, false)
	case "fail":
		s.step(t, i, true)
	case "look":
		s.look(i)
	case "observe":
		s.observe(i)
	case "kill":
		i.facts.Server = agent.Server{LastError: "killed"}
	case "restart":
		s.restartAgent(i)
	case "commit":
		s.commit()
	case "late":
		i.facts.Licensed = false
	case "expire":
		// The holder's time ends, and with it what it runs.
		s.expired = s.lease.Holder != stranger
		for _, i := range s.instances {
			leads := i.facts.Lease.Holder == i.identity() || i.facts.Server.Up && !i.facts.Server.Replica
			if s.expired && leads {
				i.facts.Server, i.unlicensed = agent.Server{LastError: "fenced"}, true
				i.facts.Licensed = false
			}
		}
	case "new Lease":
		// Deleted by somebody, and made again by the operator.
		s.write(lease.Lease{})
	case "clear Lease":
		l := s.lease
		l.Holder = ""
		s.write(l)
	case "stranger":
		l := s.lease
		l.Holder = stranger
		s.write(l)
	case "replace pod":
		if !i.stale && i.facts.Data.Present && len(s.stale) < 3 {
			s.replacePod(i)
		}
	case "settings":
		i.facts.Configured, i.facts.ProvisionDue = false, true
	case "wipe":
		if s.writer != i.facts.Self {
			s.restartAgent(i)
			i.facts.Data = agent.Data{Known: true}
		}
	case "stubborn":
		i.stubborn = true
	case "astray":
		if i.facts.Data.Replica && s.writer != i.facts.Self {
			i.astray = true
		}
	}
}

// TestSimulation lets agents and faults alternate at random, and then leaves the agents alone.
func TestSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulated(rapid.IntRange(1, 4).Draw(t, "instances"), rapid.Bool().Draw(t, "failover"))
		if rapid.Bool().Draw(t, "begins well") && !s.settle(t) {
			t.Fatal("the cluster does not begin")
		}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			i := rapid.SampledFrom(s.all()).Draw(t, "instance")
			s.happen(t, rapid.SampledFrom(events).Draw(t, "event"), i)
			s.check(t)
		}
		if s.lease.Holder == stranger {
			s.happen(t, "clear Lease", nil) // As the message asks for.
		}
		if s.settle(t) {
			return
		}
		for _, i := range s.all() {
			t.Logf("%s: %+v\n%+v", i.identity(), i.decision, i.facts)
		}
		t.Fatal("the cluster does not settle")
	})
}
