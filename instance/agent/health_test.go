package agent_test

import (
	"strings"
	"testing"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
)

// TestHung has a replica hang: it is started again once, then its data is asked about, and cloned if nothing else is
// wrong with it.
func TestHung(t *testing.T) {
	hung := replicaFacts()
	hung.Server.Hung = "the process that replays the log hangs"
	restarted := hung
	restarted.Repairs.Restarts = 1
	for name, tc := range map[string]struct {
		facts   agent.Facts
		change  func(f *agent.Facts)
		do      agent.Task
		state   contract.State
		message string
	}{
		"hangs": {facts: hung, do: agent.TaskRevive, state: contract.StateHung, message: "replays the log hangs"},
		"lets nobody in": {
			facts: hung, do: agent.TaskRevive, state: contract.StateHung,
			change: func(f *agent.Facts) { f.Server.Accepting, f.Server.Streaming = false, false },
		},
		"cannot be ended": {
			facts: hung, state: contract.StateHung, message: "processes [7] do not end",
			change: func(f *agent.Facts) {
				f.Failed = agent.Failure{Task: agent.TaskRevive, Message: "processes [7] do not end", Count: 1, Waiting: true}
			},
		},
		"hangs again": {facts: restarted, do: agent.TaskDiagnose, state: contract.StateHung, message: "also after a restart"},
		"hangs again without a primary": {
			facts: restarted, state: contract.StateHung, message: "also after a restart",
			change: func(f *agent.Facts) { f.Primary.Instance = "" },
		},
		"is to be cloned, and does not obey": {
			facts: restarted, do: agent.TaskFence, state: contract.StateCloning, message: "also after a restart",
			change: func(f *agent.Facts) {
				f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictStream}.Hangs(f.Server.Hung)
			},
		},
		"hangs in an election": {
			facts: hung, do: agent.TaskRevive, state: contract.StateHung,
			change: func(f *agent.Facts) {
				f.Config.FailoverEnabled, f.Lease.Holder, f.Server.Streaming = true, "", false
				f.Challenge = agent.Challenge{Due: true, Reason: "the Lease ended", Free: true}
			},
		},
		"is behind": {facts: replicaFacts(), state: contract.StateLagging, message: "paused", change: late},
		"is behind, and has new settings": {
			facts: replicaFacts(), do: agent.TaskConfigure, state: contract.StateLagging, message: "paused",
			change: func(f *agent.Facts) { late(f); f.Configured = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := tc.facts
			config := *f.Config
			f.Config = &config
			if tc.change != nil {
				tc.change(&f)
			}
			got := agent.Decide(f)
			if got.Do != tc.do || got.State != tc.state || got.Label || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if d := (agent.Diagnosis{Verdict: agent.VerdictAhead}).Hangs("hangs"); d.Verdict != agent.VerdictAhead {
		t.Errorf("data that only this instance has is %s", d.Verdict)
	}
}

func late(f *agent.Facts) { f.Server.Late = "what it serves is old: replay is paused" }
