package runner

import (
	"testing"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/lease"
)

// TestWaiting reports what an election waits for, until it is over.
func TestWaiting(t *testing.T) {
	r := adopter(t, &leaseKube{lease: lease.Lease{Version: "first", Holder: "db-1_x", Term: 3, SystemID: "7"}})
	c := &candidacy{runner: r, lease: r.keeper.last}
	for _, tc := range []struct {
		step            election.Step
		reason, message string
	}{
		{
			election.Step{Reason: "not enough members vote", Missing: []string{"db-2: " + silent, "db-3: leads itself"}},
			"WaitingForQuorum", "db-2 does not answer, db-3: leads itself",
		},
		{election.Step{Reason: "term 9 has begun", Seen: 9}, "WaitingForElection", "term 9 has begun"},
	} {
		c.tell(tc.step)
		r.refresh()
		report := r.report(r.decision)
		if report.Waiting != tc.reason || r.facts.Challenge.Progress != tc.message {
			t.Errorf("%+v: reports %q, says %q", tc.step, report.Waiting, r.facts.Challenge.Progress)
		}
	}
	if r.memory.SeenTerm != 9 {
		t.Errorf("term %d is the last seen", r.memory.SeenTerm)
	}
	r.waitFor("", "")
	if r.refresh(); r.report(r.decision).Waiting != "" {
		t.Error("still waits")
	}
}

// TestCause tells why a primary is replaced, by the Lease as it was.
func TestCause(t *testing.T) {
	for name, tc := range map[string]struct {
		lease     lease.Lease
		suspected bool
		dead      string
		cause     string
		from      string
	}{
		"expired":     {lease: lease.Lease{Holder: "db-1_x"}, cause: contract.CauseLeaseExpired, from: "db-1"},
		"ended":       {lease: lease.Lease{Holder: "db-1_x"}, dead: "db-1_x", cause: contract.CausePrimaryDead, from: "db-1"},
		"another one": {lease: lease.Lease{Holder: "db-1_y"}, dead: "db-1_x", cause: contract.CauseLeaseExpired, from: "db-1"},
		"silent":      {lease: lease.Lease{Holder: "db-1_x"}, suspected: true, cause: contract.CausePrimarySilent, from: "db-1"},
		"handed over": {lease: lease.Lease{ReleasedBy: "db-1_x", Released: 7}, cause: contract.CauseHandedOver, from: "db-1"},
		"died":        {lease: lease.Lease{ReleasedBy: "db-1_x"}, cause: contract.CausePostgresFailed, from: "db-1"},
		"cleared":     {cause: contract.CauseLeaseCleared},
	} {
		c := &candidacy{runner: &Runner{dead: tc.dead}, lease: tc.lease, suspected: tc.suspected}
		if c.cause() != tc.cause || c.lease.Former() != tc.from {
			t.Errorf("%s: %s of %q", name, c.cause(), c.lease.Former())
		}
	}
}
