package agent_test

import (
	"strings"
	"testing"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
)

// withFailover is what an instance knows in a cluster whose members take over from each other.
func withFailover(f agent.Facts, change func(f *agent.Facts)) agent.Facts {
	config := *f.Config
	config.FailoverEnabled = true
	f.Config = &config
	f.LedTerm = 1
	if f.Data.Replica {
		f.LedTerm = 0
	}
	change(&f)
	return f
}

// challenged is a replica whose primary's time is over.
func challenged(f *agent.Facts) {
	f.Server.Streaming = false
	f.Challenge = agent.Challenge{Due: true, Free: true, Reason: "db-0 did not renew the Lease"}
}

// elected is a replica that won an election.
func elected(f *agent.Facts) {
	f.Lease.Holder, f.Lease.Term, f.HeldTerm, f.Elected = "db-1_x", 2, 2, 2
	f.Licensed = true
}

func TestDecideElections(t *testing.T) {
	type change func(f *agent.Facts)
	for name, tc := range map[string]struct {
		facts   agent.Facts
		change  change
		do      agent.Task
		cancel  bool
		state   contract.State
		message string
		follow  string
		waiting string
	}{
		"primary silent, its Lease goes on": {
			facts: replicaFacts(), state: contract.StateNotStreaming, message: "db-0, and its Lease has not ended: refused",
			follow: "db-0", waiting: contract.WaitingForLease,
			change: func(f *agent.Facts) {
				f.Server.Streaming, f.Server.LastError, f.Challenge.Silent = false, "refused", true
			},
		},
		"primary silent, but the data is the reason": {
			facts: replicaFacts(), state: contract.StateNotStreaming, message: "log is gone", follow: "db-0",
			change: func(f *agent.Facts) {
				f.Server.Streaming, f.Challenge.Silent, f.Diagnosis.Detail = false, true, "log is gone"
			},
		},
		"primary's agent silent": {
			facts: replicaFacts(), state: contract.StateRunning, follow: "db-0",
			change: func(f *agent.Facts) { f.Challenge.Silent = true },
		},
		"Lease cleared, its holder may go on": {
			facts: replicaFacts(), state: contract.StateNotStreaming, message: "may go on", waiting: contract.WaitingForLease,
			change: func(f *agent.Facts) { f.Lease.Holder = "" },
		},
		"Lease of a stranger": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "db-9_x", waiting: contract.WaitingForLease,
			change: func(f *agent.Facts) { f.Lease.Holder = "db-9_x" },
		},
		"Lease not renewed by this primary": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateWaiting, message: "not renewed",
			waiting: contract.WaitingForLease,
			change:  func(f *agent.Facts) { f.Licensed = false },
		},
		"Lease cannot be read": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "API server", waiting: contract.WaitingForLease,
			change: func(f *agent.Facts) { f.LeaseKnown, f.Unanswered = false, true },
		},
		"Lease is about to be read": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "API server",
			change: func(f *agent.Facts) { f.LeaseKnown = false },
		},
		"nobody holds the Lease": {
			facts: replicaFacts(), do: agent.TaskElect, state: contract.StateNotStreaming, message: "did not renew",
			change: func(f *agent.Facts) { challenged(f); f.Lease.Holder = "" },
		},
		"nobody holds the Lease, configuring": {
			facts: replicaFacts(), cancel: true, state: contract.StateNotStreaming,
			change: func(f *agent.Facts) {
				challenged(f)
				f.Lease.Holder, f.Running = "", agent.TaskConfigure
			},
		},
		"an election goes on": {
			facts: replicaFacts(), state: contract.StateNotStreaming, message: "db-2 does not answer",
			change: func(f *agent.Facts) {
				challenged(f)
				f.Lease.Holder, f.Running, f.Challenge.Progress = "", agent.TaskElect, "db-2 does not answer"
			},
		},
		"nobody holds the Lease, stopped": {
			facts: replicaFacts(), do: agent.TaskStartReplica, state: contract.StateWaiting,
			change: func(f *agent.Facts) { f.Lease.Holder, f.Server = "", agent.Server{} },
		},
		"nobody holds the Lease, recovering": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "recovers",
			change: func(f *agent.Facts) { f.Lease.Holder, f.Server.Accepting = "", false },
		},
		"nobody holds the Lease, history diverged": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "forked",
			change: func(f *agent.Facts) {
				challenged(f)
				f.Lease.Holder, f.Diagnosis = "", agent.Diagnosis{Verdict: agent.VerdictRewind, Detail: "forked"}
			},
		},
		"the primary's time is over": {
			facts: replicaFacts(), do: agent.TaskElect, state: contract.StateNotStreaming, message: "did not renew", change: challenged,
		},
		"the primary's time is over, no failover": {
			facts: replicaFacts(), state: contract.StateNotStreaming, follow: "db-0",
			change: func(f *agent.Facts) { challenged(f); f.Config.FailoverEnabled = false },
		},
		"the primary's time is over, no member": {
			facts: replicaFacts(), state: contract.StateNotStreaming, follow: "db-0",
			change: func(f *agent.Facts) { challenged(f); f.Config.Members = []string{"db-0", "db-2"} },
		},
		"the primary's time is over, no data": {
			facts: replicaFacts(), state: contract.StateCloning, do: agent.TaskClone, follow: "db-0",
			change: func(f *agent.Facts) { challenged(f); f.Server, f.Data = agent.Server{}, agent.Data{Known: true} },
		},
		"the primary's time is over, data of an older primary": {
			facts: replicaFacts(), state: contract.StateWaiting, do: agent.TaskStartReplica,
			change: func(f *agent.Facts) {
				challenged(f)
				f.Server, f.Data.Replica, f.LedTerm, f.Lease.Term = agent.Server{}, false, 1, 2
			},
		},
		"the primary's time is over, data of an unknown primary": {
			facts: replicaFacts(), state: contract.StateStarting, do: agent.TaskDiagnose, follow: "db-0",
			change: func(f *agent.Facts) { challenged(f); f.Server, f.Data.Replica = agent.Server{}, false },
		},
		"another one took the Lease": {
			facts: replicaFacts(), cancel: true, state: contract.StateStarting, follow: "db-0",
			change: func(f *agent.Facts) { f.Running = agent.TaskElect },
		},
		"elected":           {facts: replicaFacts(), do: agent.TaskPromote, state: contract.StateStarting, change: elected},
		"elected, stopped":  {facts: replicaFacts(), do: agent.TaskStartReplica, state: contract.StateStarting, change: func(f *agent.Facts) { elected(f); f.Server = agent.Server{} }},
		"elected, at it":    {facts: replicaFacts(), state: contract.StateStarting, change: func(f *agent.Facts) { elected(f); f.Running = agent.TaskPromote }},
		"elected, election": {facts: replicaFacts(), cancel: true, state: contract.StateStarting, change: func(f *agent.Facts) { elected(f); f.Running = agent.TaskElect }},
		"elected in vain": {
			facts: replicaFacts(), do: agent.TaskFence, state: contract.StateStarting, message: "no space",
			change: func(f *agent.Facts) {
				elected(f)
				f.Failed = agent.Failure{Task: agent.TaskPromote, Message: "no space", Count: 3}
			},
		},
		"elected in vain, stopped": {
			facts: replicaFacts(), do: agent.TaskRelease, state: contract.StateStarting,
			change: func(f *agent.Facts) {
				elected(f)
				f.Server, f.Failed = agent.Server{}, agent.Failure{Task: agent.TaskPromote, Message: "no space", Count: 3}
			},
		},
		"elected in an earlier term": {
			facts: replicaFacts(), do: agent.TaskFence, state: contract.StateStarting,
			change: func(f *agent.Facts) { elected(f); f.Elected = 1 },
		},
		"holds the Lease with a replica's copy": {
			facts: replicaFacts(), do: agent.TaskRelease, state: contract.StateStarting, message: "gives the Lease away",
			change: func(f *agent.Facts) { elected(f); f.Elected, f.Server = 1, agent.Server{} },
		},
		"the primary's data is gone": {
			facts: primaryFacts(), do: agent.TaskRelease, state: contract.StateStarting, message: "gives the Lease away",
			change: func(f *agent.Facts) { f.Server, f.Data = agent.Server{}, agent.Data{Known: true} },
		},
		"the primary's data is gone, no failover": {
			facts: primaryFacts(), state: contract.StateFailed, message: "No new database",
			change: func(f *agent.Facts) {
				f.Server, f.Data, f.Config.FailoverEnabled = agent.Server{}, agent.Data{Known: true}, false
			},
		},
		"predecessor holds, empty volume": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "earlier incarnation",
			change: func(f *agent.Facts) {
				f.Server, f.Data, f.Lease.Holder = agent.Server{}, agent.Data{Known: true}, "db-0_old"
			},
		},
		"predecessor holds, replica's copy": {
			facts: primaryFacts(), do: agent.TaskStartReplica, state: contract.StateWaiting,
			change: func(f *agent.Facts) { f.Server, f.Data.Replica, f.Lease.Holder = agent.Server{}, true, "db-0_old" },
		},
		"predecessor holds, primary's data": {
			facts: primaryFacts(), do: agent.TaskTake, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Server, f.Lease.Holder = agent.Server{}, "db-0_old" },
		},
		"gave the Lease away": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "waits for another",
			change: func(f *agent.Facts) { f.Server, f.Lease.Holder, f.HeldTerm = agent.Server{}, "", 1 },
		},
		"gave the Lease away, nobody took it": {
			facts: primaryFacts(), do: agent.TaskTake, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Server, f.Lease.Holder, f.HeldTerm, f.Unclaimed = agent.Server{}, "", 1, true },
		},
		"another one led since": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "term 3", waiting: contract.WaitingForLease,
			change: func(f *agent.Facts) {
				f.Server, f.Lease, f.Unclaimed = agent.Server{}, lease.Lease{Term: 3, SystemID: "7"}, true
			},
		},
		"another one led since, free": {
			facts: primaryFacts(), do: agent.TaskStartReplica, state: contract.StateWaiting,
			change: func(f *agent.Facts) {
				challenged(f)
				f.Server, f.Lease, f.Unclaimed = agent.Server{}, lease.Lease{Term: 3, SystemID: "7"}, true
			},
		},
		"the Lease was made anew": {
			facts: primaryFacts(), do: agent.TaskElect, state: contract.StateWaiting,
			change: func(f *agent.Facts) { challenged(f); f.Server, f.Lease, f.LedTerm = agent.Server{}, lease.Lease{}, 4 },
		},
		"the Lease was made anew under a primary": {
			facts: primaryFacts(), do: agent.TaskTake, state: contract.StateRunning,
			change: func(f *agent.Facts) { f.Lease = lease.Lease{} },
		},
		"promised never to follow": {
			facts: replicaFacts(), do: agent.TaskConfigure, state: contract.StateNotStreaming, message: "took part in an election",
			change: func(f *agent.Facts) { f.Promised, f.Configured = 1, false },
		},
		"promised never to follow, stopped": {
			facts: replicaFacts(), do: agent.TaskStartReplica, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Promised, f.Server = 1, agent.Server{} },
		},
		"promised never to follow, empty": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "took part in an election",
			change: func(f *agent.Facts) { f.Promised, f.Server, f.Data = 1, agent.Server{}, agent.Data{Known: true} },
		},
		"promised of an older term": {
			facts: replicaFacts(), state: contract.StateRunning, follow: "db-0",
			change: func(f *agent.Facts) { f.Promised, f.Lease.Term = 1, 2 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := agent.Decide(withFailover(tc.facts, tc.change))
			if got.Do != tc.do || got.Cancel != tc.cancel || got.State != tc.state || !strings.Contains(got.Message, tc.message) ||
				got.Follow != tc.follow || got.Waiting != tc.waiting {
				t.Errorf("got %+v", got)
			}
		})
	}
}
