package runner

import (
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
)

func TestWaitWord(t *testing.T) {
	tests := map[string]struct {
		step election.Step
		want string
	}{
		"another has more":     {step: election.Step{Reason: "db-2 has more"}, want: contract.WaitingForElection},
		"votes are missing":    {step: election.Step{Missing: []string{"db-2 does not answer"}}, want: contract.WaitingForQuorum},
		"all have to vote":     {step: election.Step{All: true, Missing: []string{"db-0 does not answer"}}, want: contract.WaitingForInstances},
		"too much may be lost": {step: election.Step{Behind: true, Reason: "lacks 5 bytes"}, want: contract.TooFarBehind},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := waitWord(test.step); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestWaitingSince: the time is that of the word, not of the last report.
func TestWaitingSince(t *testing.T) {
	r := &Runner{}
	if got := r.waits(agent.Decision{}); got != (wait{}) {
		t.Errorf("waits for %+v", got)
	}
	r.waiting = contract.WaitingForQuorum
	first := r.waits(agent.Decision{})
	if first.word != contract.WaitingForQuorum || time.Since(first.since) > time.Minute {
		t.Errorf("waits for %+v", first)
	}
	earlier := first.since.Add(-time.Hour)
	r.wait.since = earlier
	if again := r.waits(agent.Decision{}); !again.since.Equal(earlier) {
		t.Errorf("since %s, want %s", again.since, earlier)
	}
	r.waiting = contract.TooFarBehind
	if other := r.waits(agent.Decision{}); other.since.Equal(earlier) {
		t.Error("another reason is as old as the one before")
	}
	r.waiting = ""
	if got := r.waits(agent.Decision{Waiting: contract.WaitingForLease}); got.word != contract.WaitingForLease {
		t.Errorf("waits for %+v", got)
	}
}
