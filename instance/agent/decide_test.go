package agent_test

import (
	"strings"
	"testing"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// primaryFacts are those of db-0 that leads and is well.
func primaryFacts() agent.Facts {
	return agent.Facts{
		Self: "db-0", Incarnation: "x", LeaseKnown: true,
		Config:   &contract.Config{Cluster: "db", Version: "17", Members: []string{"db-0", "db-1"}, SystemID: "7"},
		Programs: postgres.ServerVersion{Major: "17", Full: "17.6"},
		Data:     agent.Data{Known: true, Major: "17", Timeline: 1, Data: lease.Data{Present: true, SystemID: "7"}},
		Lease:    lease.Lease{Holder: "db-0_x", Term: 1, SystemID: "7"},
		Server:   agent.Server{Up: true, Accepting: true, Timeline: 1},
		Primary:  agent.Endpoint{Instance: "db-0", Address: "10.0.0.1", Port: 5432},

		Licensed: true, Provisioned: true, Configured: true,
	}
}

// replicaFacts are those of db-1 that follows db-0 and is well.
func replicaFacts() agent.Facts {
	f := primaryFacts()
	f.Self = "db-1"
	f.Data.Replica, f.Licensed = true, false
	f.Server = agent.Server{Up: true, Replica: true, Accepting: true, Recovering: true, Streaming: true, Timeline: 1}
	return f
}

func TestDecide(t *testing.T) {
	type change func(f *agent.Facts)
	for name, tc := range map[string]struct {
		facts  agent.Facts
		change change
		do     agent.Task
		cancel bool
		state  contract.State
		serve  bool
		label  bool
		// message is a part of the message.
		message string
	}{
		"primary is well": {facts: primaryFacts(), state: contract.StateRunning, serve: true, label: true},
		"replica is well": {facts: replicaFacts(), state: contract.StateRunning, label: true},
		"no configuration": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "ConfigMap",
			change: func(f *agent.Facts) { f.Config, f.Server = nil, agent.Server{} },
		},
		"no PostgreSQL in the image": {
			facts: primaryFacts(), state: contract.StateFailed, message: "no PostgreSQL",
			change: func(f *agent.Facts) { f.ProgramsProblem, f.Server = "the image has no PostgreSQL", agent.Server{} },
		},
		"image of another version": {
			facts: primaryFacts(), state: contract.StateFailed, message: "the image has PostgreSQL 16.1, but spec.version is \"17\"",
			change: func(f *agent.Facts) {
				f.Programs, f.Server = postgres.ServerVersion{Major: "16", Full: "16.1"}, agent.Server{}
			},
		},
		"data of another version": {
			facts: primaryFacts(), state: contract.StateFailed, message: "data of PostgreSQL 16",
			change: func(f *agent.Facts) { f.Data.Major, f.Server = "16", agent.Server{} },
		},
		"another version is wanted of a running server": {
			facts: primaryFacts(), state: contract.StateRunning, serve: true, label: true,
			change: func(f *agent.Facts) { f.Config.Version = "18" },
		},
		"foreign data": {
			facts: replicaFacts(), state: contract.StateFailed, message: "nothing was changed",
			change: func(f *agent.Facts) { f.Data.SystemID, f.Server = "8", agent.Server{} },
		},
		"new cluster": {
			facts: primaryFacts(), do: agent.TaskTake, state: contract.StateStarting,
			change: func(f *agent.Facts) {
				f.Lease, f.Server, f.Data, f.Config.SystemID = lease.Lease{}, agent.Server{}, agent.Data{Known: true}, ""
			},
		},
		"took a new cluster's Lease": {
			facts: primaryFacts(), do: agent.TaskBootstrap, state: contract.StateBootstrapping,
			change: func(f *agent.Facts) {
				f.Lease.SystemID, f.Server, f.Data, f.Config.SystemID = "", agent.Server{}, agent.Data{Known: true}, ""
			},
		},
		"initdb keeps failing": {
			facts: primaryFacts(), state: contract.StateFailed, message: "no space",
			change: func(f *agent.Facts) {
				f.Lease.SystemID, f.Server, f.Data, f.Config.SystemID = "", agent.Server{}, agent.Data{Known: true}, ""
				f.Failed = agent.Failure{Task: agent.TaskBootstrap, Message: "no space", Count: 3, Waiting: true}
			},
		},
		"the primary's data is gone": {
			facts: primaryFacts(), state: contract.StateFailed, message: "No new database is made",
			change: func(f *agent.Facts) { f.Server, f.Data = agent.Server{}, agent.Data{Known: true} },
		},
		"start as primary": {
			facts: primaryFacts(), do: agent.TaskStartPrimary, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Server = agent.Server{} },
		},
		"licence ended": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateWaiting, message: "not renewed",
			change: func(f *agent.Facts) { f.Licensed = false },
		},
		"licence ended while PostgreSQL starts": {
			facts: primaryFacts(), cancel: true, state: contract.StateWaiting, message: "not renewed",
			change: func(f *agent.Facts) { f.Licensed, f.Server, f.Running = false, agent.Server{}, agent.TaskStartPrimary },
		},
		"licence ended, fenced": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "not renewed",
			change: func(f *agent.Facts) { f.Licensed, f.Server = false, agent.Server{} },
		},
		"licence ended while nobody holds the Lease": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateWaiting, message: "not renewed",
			change: func(f *agent.Facts) { f.Licensed, f.Lease.Holder = false, "" },
		},
		"licence ended during a stop": {
			facts: primaryFacts(), cancel: true, state: contract.StateStopping,
			change: func(f *agent.Facts) { f.Licensed, f.Stopping, f.Running = false, true, agent.TaskStop },
		},
		"recovers": {
			facts: primaryFacts(), state: contract.StateStarting, message: "recovers",
			change: func(f *agent.Facts) { f.Server.Accepting = false },
		},
		"provision before serving": {
			facts: primaryFacts(), do: agent.TaskProvision, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Provisioned = false },
		},
		"serves though it cannot provision": {
			facts: primaryFacts(), state: contract.StateRunning, serve: true, label: true, message: "disk full",
			change: func(f *agent.Facts) {
				f.Provisioned = false
				f.Failed = agent.Failure{Task: agent.TaskProvision, Message: "disk full", Waiting: true}
			},
		},
		"a member was added": {
			facts: primaryFacts(), do: agent.TaskProvision, state: contract.StateRunning, serve: true, label: true,
			change: func(f *agent.Facts) { f.ProvisionDue = true },
		},
		"settings changed": {
			facts: primaryFacts(), do: agent.TaskConfigure, state: contract.StateRunning, serve: true, label: true,
			change: func(f *agent.Facts) { f.Configured = false },
		},
		"order to restart": {
			facts: replicaFacts(), do: agent.TaskRestart, state: contract.StateRunning, label: true,
			change: func(f *agent.Facts) { f.RestartOrder = "9" },
		},
		"the Lease was made anew": {
			facts: primaryFacts(), do: agent.TaskTake, state: contract.StateRunning, serve: true, label: true,
			change: func(f *agent.Facts) { f.Lease = lease.Lease{} },
		},
		"lost the Lease": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateStarting, message: "db-1 holds the Lease",
			change: func(f *agent.Facts) { f.Lease.Holder = "db-1_y" },
		},
		"the Lease is a stranger's": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateWaiting, message: "patch lease db",
			change: func(f *agent.Facts) { f.Lease.Holder = "db-7_zzz" },
		},
		"the Lease is a stranger's, replica": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "db-7_zzz",
			change: func(f *agent.Facts) { f.Lease.Holder = "db-7_zzz" },
		},
		"lost the Lease to one that does not serve": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "until db-1",
			change: func(f *agent.Facts) { f.Lease.Holder, f.Server = "db-1_y", agent.Server{} },
		},
		"lost the Lease to one that serves": {
			facts: primaryFacts(), do: agent.TaskDiagnose, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Lease.Holder, f.Server, f.Primary.Instance = "db-1_y", agent.Server{}, "db-1" },
		},
		"lost the Lease to one that it can follow": {
			facts: primaryFacts(), do: agent.TaskStartReplica, state: contract.StateStarting,
			change: func(f *agent.Facts) {
				f.Lease.Holder, f.Server, f.Primary.Instance = "db-1_y", agent.Server{}, "db-1"
				f.Diagnosis.Verdict = agent.VerdictStream
			},
		},
		"lost the Lease during a task": {
			facts: primaryFacts(), cancel: true, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Lease.Holder, f.Running = "db-1_y", agent.TaskProvision },
		},
		"stale twin": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateWaiting, message: "later incarnation",
			change: func(f *agent.Facts) { f.Lease.Holder, f.Lease.Term, f.HeldTerm = "db-0_y", 2, 1 },
		},
		"stale twin at work": {
			facts: primaryFacts(), cancel: true, state: contract.StateWaiting, message: "later incarnation",
			change: func(f *agent.Facts) {
				f.Lease.Holder, f.Lease.Term, f.HeldTerm = "db-0_y", 2, 1
				f.Server, f.Running = agent.Server{}, agent.TaskStartPrimary
			},
		},
		"stale twin has stopped": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "later incarnation",
			change: func(f *agent.Facts) {
				f.Lease.Holder, f.Lease.Term, f.HeldTerm, f.Server = "db-0_y", 2, 1, agent.Server{}
			},
		},
		"promoted by somebody": {
			facts: replicaFacts(), do: agent.TaskFence, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Server.Recovering = false },
		},
		"clone": {
			facts: replicaFacts(), do: agent.TaskClone, state: contract.StateCloning,
			change: func(f *agent.Facts) { f.Server, f.Data = agent.Server{}, agent.Data{Known: true} },
		},
		"clone without a primary": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "waits for db-0",
			change: func(f *agent.Facts) {
				f.Server, f.Data, f.Primary = agent.Server{}, agent.Data{Known: true}, agent.Endpoint{}
			},
		},
		"clone from a stale primary": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "waits for db-0",
			change: func(f *agent.Facts) {
				f.Server, f.Data, f.Primary.Instance = agent.Server{}, agent.Data{Known: true}, "db-2"
			},
		},
		"torn by a rewind": {
			facts: replicaFacts(), do: agent.TaskClone, state: contract.StateCloning,
			change: func(f *agent.Facts) { f.Server, f.Data.Torn = agent.Server{}, true },
		},
		"torn and the primary": {
			facts: primaryFacts(), state: contract.StateFailed, message: "being rewound",
			change: func(f *agent.Facts) { f.Server, f.Data.Torn = agent.Server{}, true },
		},
		"holds the Lease with a replica's copy": {
			facts: primaryFacts(), state: contract.StateFailed, message: "not promoted",
			change: func(f *agent.Facts) { f.Server, f.Data.Replica = agent.Server{}, true },
		},
		"does not stream": {
			facts: replicaFacts(), state: contract.StateNotStreaming, message: "does not stream",
			change: func(f *agent.Facts) { f.Server.Streaming = false },
		},
		"does not stream for long": {
			facts: replicaFacts(), do: agent.TaskDiagnose, state: contract.StateNotStreaming,
			change: func(f *agent.Facts) { f.Server.Streaming, f.Server.Silent = false, true },
		},
		"does not stream, no primary": {
			facts: replicaFacts(), state: contract.StateNotStreaming, message: "waits for db-0",
			change: func(f *agent.Facts) { f.Server.Streaming, f.Server.Silent, f.Primary = false, true, agent.Endpoint{} },
		},
		"primary moved": {
			facts: replicaFacts(), do: agent.TaskConfigure, state: contract.StateNotStreaming,
			change: func(f *agent.Facts) { f.Server.Streaming, f.Configured = false, false },
		},
		"primary moved during a diagnosis": {
			facts: replicaFacts(), cancel: true, state: contract.StateNotStreaming,
			change: func(f *agent.Facts) { f.Server.Streaming, f.Configured, f.Running = false, false, agent.TaskDiagnose },
		},
		"stop to rewind": {
			facts: replicaFacts(), do: agent.TaskStop, state: contract.StateStarting, message: "forked",
			change: func(f *agent.Facts) { f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictRewind, Detail: "forked"} },
		},
		"rewind": {
			facts: replicaFacts(), do: agent.TaskRewind, state: contract.StateStarting,
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{}, agent.Diagnosis{Verdict: agent.VerdictRewind, Detail: "forked"}
			},
		},
		"rewind failed": {
			facts: replicaFacts(), do: agent.TaskClone, state: contract.StateCloning, message: "no common ancestor",
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{}, agent.Diagnosis{Verdict: agent.VerdictRewind}
				f.Failed = agent.Failure{Task: agent.TaskRewind, Message: "no common ancestor", Waiting: true}
			},
		},
		"too far behind": {
			facts: replicaFacts(), do: agent.TaskStop, state: contract.StateCloning, message: "log is gone",
			change: func(f *agent.Facts) {
				f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictClone, Detail: "log is gone"}
			},
		},
		"too far behind, no primary": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "waits for db-0",
			change: func(f *agent.Facts) {
				f.Primary, f.Diagnosis = agent.Endpoint{}, agent.Diagnosis{Verdict: agent.VerdictClone}
			},
		},
		"the primary is another database": {
			facts: replicaFacts(), state: contract.StateFailed, message: "nothing was changed",
			change: func(f *agent.Facts) {
				f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictForeign, Detail: "nothing was changed"}
			},
		},
		"has what the primary lost": {
			facts: replicaFacts(), do: agent.TaskStop, state: contract.StateFailed, message: "volume claim data-db-1",
			change: func(f *agent.Facts) { f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictAhead, Detail: "more log"} },
		},
		"has what the primary lost, stopped": {
			facts: replicaFacts(), state: contract.StateFailed, message: "more log",
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{}, agent.Diagnosis{Verdict: agent.VerdictAhead, Detail: "more log"}
			},
		},
		"replica does not start": {
			facts: replicaFacts(), do: agent.TaskDiagnose, state: contract.StateStarting, message: "panic",
			change: func(f *agent.Facts) { f.Server = agent.Server{Broken: true, LastError: "panic"} },
		},
		"replica does not start, primary is well": {
			facts: replicaFacts(), do: agent.TaskClone, state: contract.StateCloning, message: "panic",
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{Broken: true, LastError: "panic"}, agent.Diagnosis{Verdict: agent.VerdictStream}
			},
		},
		"cloned in vain": {
			facts: replicaFacts(), do: agent.TaskStartReplica, state: contract.StateWaiting, message: "attempts: 1); waits before the next clone: PostgreSQL cannot start",
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{Broken: true, LastError: "panic"}, agent.Diagnosis{Verdict: agent.VerdictStream}
				f.Repairs = agent.Repairs{Clones: 1, Waiting: true}
			},
		},
		"cloned in vain, log gone": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "log is gone",
			change: func(f *agent.Facts) {
				f.Diagnosis = agent.Diagnosis{Verdict: agent.VerdictClone, Detail: "log is gone"}
				f.Repairs = agent.Repairs{Clones: 1, Waiting: true}
			},
		},
		"cloned in vain again and again": {
			facts: replicaFacts(), state: contract.StateFailed, message: "no space",
			change: func(f *agent.Facts) {
				f.Server, f.Data.Torn = agent.Server{}, true
				f.Failed = agent.Failure{Task: agent.TaskClone, Message: "no space"}
				f.Repairs = agent.Repairs{Clones: 3, Waiting: true}
			},
		},
		"another instance is cloned": {
			facts: replicaFacts(), state: contract.StateWaiting, message: "waits until db-2 has been cloned",
			change: func(f *agent.Facts) {
				f.Server, f.Data, f.Running, f.CloneAfter = agent.Server{}, agent.Data{Known: true}, agent.TaskClone, "db-2"
			},
		},
		"cloned in vain, waited": {
			facts: replicaFacts(), do: agent.TaskClone, state: contract.StateCloning,
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{}, agent.Diagnosis{Verdict: agent.VerdictClone}
				f.Repairs = agent.Repairs{Clones: 1}
			},
		},
		"rewound in vain": {
			facts: replicaFacts(), do: agent.TaskClone, state: contract.StateCloning, message: "forked; a rewind did not",
			change: func(f *agent.Facts) {
				f.Server, f.Diagnosis = agent.Server{}, agent.Diagnosis{Verdict: agent.VerdictRewind, Detail: "forked"}
				f.Repairs = agent.Repairs{Rewinds: 1}
			},
		},
		"primary does not start": {
			facts: primaryFacts(), do: agent.TaskStartPrimary, state: contract.StateFailed, message: "panic",
			change: func(f *agent.Facts) { f.Server = agent.Server{Broken: true, LastError: "panic"} },
		},
		"start waits after a failure": {
			facts: primaryFacts(), state: contract.StateStarting, message: "panic",
			change: func(f *agent.Facts) {
				f.Server = agent.Server{LastError: "panic"}
				f.Failed = agent.Failure{Task: agent.TaskStartPrimary, Message: "panic", Count: 1, Waiting: true}
			},
		},
		"clone while taking over": {
			facts: primaryFacts(), cancel: true, state: contract.StateStarting,
			change: func(f *agent.Facts) { f.Server, f.Running = agent.Server{}, agent.TaskClone },
		},
		"API server never answered": {
			facts: primaryFacts(), state: contract.StateWaiting, message: "API server",
			change: func(f *agent.Facts) { f.LeaseKnown, f.Lease, f.Server = false, lease.Lease{}, agent.Server{} },
		},
		"stop": {
			facts: primaryFacts(), do: agent.TaskStop, state: contract.StateStopping,
			change: func(f *agent.Facts) { f.Stopping = true },
		},
		"stop while it hands over": {
			facts: primaryFacts(), state: contract.StateStopping,
			change: func(f *agent.Facts) { f.Stopping, f.Running = true, agent.TaskHandOver },
		},
		"ordered to hand over": {
			facts: primaryFacts(), do: agent.TaskHandOver, state: contract.StateRunning, serve: true, label: true,
			change: func(f *agent.Facts) { f.SwitchoverOrder = "1" },
		},
		"gives up": {
			facts: primaryFacts(), do: agent.TaskRelease, state: contract.StateStarting, message: "killed",
			change: func(f *agent.Facts) {
				f.Server, f.Abandon, f.Data.Known = agent.Server{LastError: "killed"}, "killed", false
			},
		},
		"gives up while it configures": {
			facts: primaryFacts(), cancel: true, state: contract.StateStarting, message: "hangs",
			change: func(f *agent.Facts) { f.Abandon, f.Running = "hangs", agent.TaskConfigure },
		},
		"cannot give up what it does not hold": {
			facts: primaryFacts(), do: agent.TaskFence, state: contract.StateStarting, message: "db-1 holds the Lease",
			change: func(f *agent.Facts) { f.Abandon, f.Lease.Holder = "hangs", lease.Identity("db-1", "y") },
		},
		"stop during a clone": {
			facts: replicaFacts(), cancel: true, state: contract.StateStopping,
			change: func(f *agent.Facts) { f.Stopping, f.Server, f.Running = true, agent.Server{}, agent.TaskClone },
		},
		"stopped": {
			facts: primaryFacts(), do: agent.TaskExit, state: contract.StateStopping,
			change: func(f *agent.Facts) { f.Stopping, f.Server = true, agent.Server{} },
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
			if got.Do != tc.do || got.Cancel != tc.cancel || got.State != tc.state || got.Serve != tc.serve ||
				got.Label != tc.label || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
			if got.State == contract.StateFailed && got.Message == "" {
				t.Error("failed without a reason")
			}
		})
	}
}

func TestDiagnose(t *testing.T) {
	source := agent.Source{
		Position: agent.Position{SystemID: "7", Timeline: 3, At: 1000},
		History:  []postgres.Fork{{Parent: 1, At: 100}, {Parent: 2, At: 500}},
		HasLog:   true,
	}
	for name, tc := range map[string]struct {
		own    agent.Position
		change func(s *agent.Source)
		want   agent.Verdict
		detail string
	}{
		"behind":                 {own: agent.Position{SystemID: "7", Timeline: 3, At: 900}, want: agent.VerdictStream},
		"level":                  {own: agent.Position{SystemID: "7", Timeline: 3, At: 1000}, want: agent.VerdictStream},
		"ahead":                  {own: agent.Position{SystemID: "7", Timeline: 3, At: 1001}, want: agent.VerdictAhead, detail: "nothing was changed"},
		"before the fork":        {own: agent.Position{SystemID: "7", Timeline: 1, At: 100}, want: agent.VerdictStream},
		"after the fork":         {own: agent.Position{SystemID: "7", Timeline: 2, At: 501}, want: agent.VerdictRewind, detail: "timeline 2"},
		"on a newer timeline":    {own: agent.Position{SystemID: "7", Timeline: 4, At: 10}, want: agent.VerdictRewind, detail: "not part"},
		"another database":       {own: agent.Position{SystemID: "8", Timeline: 3, At: 10}, want: agent.VerdictForeign, detail: "nothing was changed"},
		"another and diverged":   {own: agent.Position{SystemID: "8", Timeline: 9, At: 10}, want: agent.VerdictForeign},
		"slot lost":              {own: agent.Position{SystemID: "7", Timeline: 3, At: 10}, change: func(s *agent.Source) { s.SlotLost = true }, want: agent.VerdictClone, detail: "slot"},
		"open after the fork":    {own: agent.Position{SystemID: "7", Timeline: 2, At: 10, Open: true}, want: agent.VerdictRewind, detail: "in good order"},
		"open, same timeline":    {own: agent.Position{SystemID: "7", Timeline: 3, At: 10, Open: true}, want: agent.VerdictStream},
		"log gone":               {own: agent.Position{SystemID: "7", Timeline: 3, At: 10}, change: func(s *agent.Source) { s.HasLog = false }, want: agent.VerdictClone, detail: "no longer has"},
		"log gone, but forked":   {own: agent.Position{SystemID: "7", Timeline: 2, At: 600}, change: func(s *agent.Source) { s.HasLog = false }, want: agent.VerdictRewind},
		"nothing of its own":     {own: agent.Position{SystemID: "7", Timeline: 1}, want: agent.VerdictStream},
		"timeline never heard":   {own: agent.Position{SystemID: "7", Timeline: 0}, want: agent.VerdictRewind},
		"old timeline, log gone": {own: agent.Position{SystemID: "7", Timeline: 1, At: 50}, change: func(s *agent.Source) { s.HasLog = false }, want: agent.VerdictClone},
	} {
		t.Run(name, func(t *testing.T) {
			s := source
			if tc.change != nil {
				tc.change(&s)
			}
			if got := agent.Diagnose(tc.own, s); got.Verdict != tc.want || !strings.Contains(got.Detail, tc.detail) {
				t.Errorf("got %+v, want %s (%s)", got, tc.want, tc.detail)
			}
		})
	}
}
