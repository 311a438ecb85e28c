package runner

import (
	"cmp"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
)

// wait is a reason why the cluster has no primary, and since when it is that.
type wait struct {
	word  string
	since time.Time
}

// waits is what the report says of that. The caller holds mu.
func (r *Runner) waits(d agent.Decision) wait {
	word := cmp.Or(r.waiting, d.Waiting)
	if word == "" && r.left() {
		word = contract.FailoverDisabled
	}
	if word != r.wait.word {
		r.wait = wait{word: word}
		if word != "" {
			r.wait.since = time.Now().UTC().Truncate(time.Second)
		}
	}
	return r.wait
}

// left tells whether the primary is gone, and this replica is not to take its place. The caller holds mu.
func (r *Runner) left() bool {
	config := r.facts.Config
	return config != nil && !config.FailoverEnabled && len(config.Members) > 1 && r.facts.Data.Replica &&
		r.view.challenge(r.elapsed()).Due
}

// waitWord is what a campaign that led to nothing waits for.
func waitWord(step election.Step) string {
	switch {
	case step.All:
		return contract.WaitingForInstances
	case len(step.Missing) > 0:
		return contract.WaitingForQuorum
	case step.Behind:
		return contract.TooFarBehind
	default:
		return contract.WaitingForElection
	}
}
