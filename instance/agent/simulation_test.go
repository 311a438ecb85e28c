package agent_test

import (
	"fmt"
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
	lease      lease.Lease
	version    int
	service    agent.Endpoint
	config     contract.Config
	instances  []*simulatedInstance
	bootstraps int
	// writer is where the newest data is.
	writer string
}

type simulatedInstance struct {
	facts    agent.Facts
	starts   int
	decision agent.Decision
	// astray: its data has what the primary does not.
	astray bool
}

func newSimulated(count int) *simulated {
	s := &simulated{config: contract.Config{Version: "17"}}
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
	i.starts++
	config := s.config
	i.facts = agent.Facts{
		Self: i.facts.Self, Incarnation: strconv.Itoa(i.starts), Data: i.facts.Data, Config: &config,
		Programs: postgres.ServerVersion{Major: "17", Full: "17.1"},
	}
	i.decision = agent.Decision{}
}

// look shows an agent what the API server has.
func (s *simulated) look(i *simulatedInstance) {
	config := s.config
	i.facts.Config = &config
	i.facts.Lease, i.facts.LeaseKnown = s.lease, true
	i.facts.Primary = s.service
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
	server.Silent = server.Replica && !server.Streaming
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
	i.decision = agent.Decide(i.facts)
	d := i.decision
	if d.Serve && s.lease.HeldBy() == i.facts.Self {
		s.service = agent.Endpoint{Instance: i.facts.Self, Address: "10.0.0.1", Port: 5432}
	}
	if d.Do == agent.TaskNone {
		i.facts.Failed.Waiting = false
		return
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

func (s *simulated) carryOut(t *rapid.T, i *simulatedInstance, d agent.Decision) {
	f := &i.facts
	primary := s.find(d.Follow)
	alive := primary != nil && primary.facts.Server.Up && !primary.facts.Server.Replica
	switch d.Do {
	case agent.TaskTake:
		if f.Data.Torn {
			t.Fatalf("%s takes the Lease with torn data", f.Self)
		}
		if f.Lease.Version == s.lease.Version {
			s.write(f.Lease.Taken(lease.Identity(f.Self, f.Incarnation)))
		}
		s.look(i)
	case agent.TaskBootstrap:
		s.bootstraps++
		f.Data = agent.Data{Known: true, Major: "17", Timeline: 1, Data: lease.Data{Present: true, SystemID: fmt.Sprint(s.bootstraps)}}
		s.writer = f.Self
	case agent.TaskStartPrimary:
		if !f.Data.Present || f.Data.Replica || f.Data.Torn {
			t.Fatalf("%s starts as the primary with %+v", f.Self, f.Data)
		}
		f.Server = agent.Server{Up: true, Timeline: 1}
		f.Provisioned = false
	case agent.TaskStartReplica:
		if !f.Data.Present || f.Data.Torn {
			t.Fatalf("%s starts as a replica with %+v", f.Self, f.Data)
		}
		f.Data.Replica = true
		f.Server = agent.Server{Up: true, Replica: true, Timeline: 1}
	case agent.TaskProvision:
		f.Provisioned, f.ProvisionDue = true, false
		l := s.lease
		if l.Holder == lease.Identity(f.Self, f.Incarnation) {
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
		if s.writer == f.Self && !alive {
			t.Fatalf("%s throws away the only good data", f.Self)
		}
		if f.Server.Up {
			t.Fatalf("%s replaces the data under a running server", f.Self)
		}
		if alive {
			f.Data = primary.facts.Data
			f.Data.Replica = true
			f.Diagnosis, i.astray = agent.Diagnosis{}, false
		}
	case agent.TaskStop, agent.TaskFence, agent.TaskRestart:
		f.Server = agent.Server{}
	}
}

func (s *simulated) write(l lease.Lease) {
	s.version++
	l.Version = strconv.Itoa(s.version)
	s.lease = l
}

// check is what must hold at any time.
func (s *simulated) check(t *rapid.T) {
	writers := 0
	for _, i := range s.instances {
		if i.facts.Server.Up && i.facts.Server.Accepting && !i.facts.Server.Recovering && !i.facts.Server.Replica {
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

// settled tells whether every instance takes part.
func (s *simulated) settled() bool {
	for _, i := range s.instances {
		if i.decision.State != contract.StateRunning || i.decision.Do != agent.TaskNone {
			return false
		}
	}
	return true
}

// TestSimulation lets agents and faults alternate at random, and then leaves the agents alone.
func TestSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulated(rapid.IntRange(1, 4).Draw(t, "instances"))
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			i := rapid.SampledFrom(s.instances).Draw(t, "instance")
			switch rapid.SampledFrom([]string{
				"step", "step", "step", "step", "look", "look", "observe", "observe", "fail", "kill", "restart", "wipe", "astray", "settings", "new Lease",
			}).Draw(t, "event") {
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
			case "new Lease":
				// Deleted by somebody, and made again by the operator.
				s.write(lease.Lease{})
			case "settings":
				i.facts.Configured, i.facts.ProvisionDue = false, true
			case "wipe":
				if s.writer != i.facts.Self {
					s.restartAgent(i)
					i.facts.Data = agent.Data{Known: true}
				}
			case "astray":
				if i.facts.Data.Replica {
					i.astray = true
				}
			}
			s.check(t)
		}
		for range 60 {
			for _, i := range s.instances {
				s.look(i)
				s.observe(i)
				s.step(t, i, false)
				s.check(t)
			}
			if s.settled() {
				return
			}
		}
		for _, i := range s.instances {
			t.Logf("%s: %+v\n%+v", i.facts.Self, i.decision, i.facts)
		}
		t.Fatal("the cluster does not settle")
	})
}
