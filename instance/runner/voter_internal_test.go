package runner

import (
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/lease"
)

// TestDetachedFrom: log is received from the holder of a Lease that is newer than every promise, and from nobody else.
func TestDetachedFrom(t *testing.T) {
	for name, test := range map[string]struct {
		holder         string
		term, promised int32
		upstream       string
		detached       bool
	}{
		"its primary":                      {"db-0_x", 5, 0, "db-0", false},
		"a primary of a later term":        {"db-0_x", 5, 4, "db-0", false},
		"the primary that it voted off":    {"db-0_x", 5, 5, "db-0", true},
		"one that was replaced":            {"db-1_x", 6, 5, "db-0", true},
		"one of a Lease made anew":         {"db-0_x", 1, 5, "db-0", true},
		"one while nobody holds the Lease": {"", 5, 0, "db-0", true},
		"nobody":                           {"db-0_x", 5, 0, "", false},
		"whoever is named, after a vote":   {"db-0_x", 5, 5, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{Cluster: naming.Cluster("db"), Instance: "db-2"}, nil, logr.Discard())
			r.facts.Lease = lease.Lease{Holder: test.holder, Term: test.term}
			r.memory.Promised = test.promised
			if got := r.detachedFrom(agent.Endpoint{Instance: test.upstream}); got != test.detached {
				t.Errorf("detached: %v, want %v", got, test.detached)
			}
		})
	}
}

// TestHeartbeat: only a holder whose PostgreSQL takes writes leads, and only a look of late shows that it is healthy.
// What members promised is noted, and nobody else's word.
func TestHeartbeat(t *testing.T) {
	r := New(Options{Cluster: naming.Cluster("db"), Instance: "db-0", Incarnation: "x"}, nil, logr.Discard())
	r.facts.Config = &contract.Config{Members: []string{"db-0", "db-1"}}
	r.facts.Lease = lease.Lease{Holder: "db-0_x", Term: 5}
	r.facts.Server = agent.Server{Up: true, Accepting: true}
	r.answered = time.Now()
	if beat := r.Heartbeat("db-1", 5); beat.Instance != "db-0" || beat.Term != 5 || !beat.Leading || !beat.Healthy || beat.Kept != nil {
		t.Errorf("a primary says %+v", beat)
	}
	r.Heartbeat("db-1", 3)
	r.Heartbeat("db-9", 7)
	if len(r.promises) != 1 || r.promises["db-1"] != 5 {
		t.Errorf("promises %v", r.promises)
	}
	r.answered = time.Now().Add(-2 * healthyFor)
	if beat := r.Heartbeat("db-1", 0); !beat.Leading || beat.Healthy {
		t.Errorf("a primary that was not looked at lately says %+v", beat)
	}
	r.facts.Lease.Holder = "db-0_y"
	if beat := r.Heartbeat("db-1", 0); beat.Leading {
		t.Errorf("an earlier incarnation's successor says %+v", beat)
	}
}

// TestAudience: a primary is asked as long as another instance may take its place, or still has to be told of a promise.
func TestAudience(t *testing.T) {
	for name, tc := range map[string]struct {
		failover       bool
		promised, term int32
		asked          bool
	}{
		"failover":                              {failover: true, term: 5, asked: true},
		"no failover":                           {term: 5},
		"no failover, before the first term":    {},
		"no failover, a promise of this term":   {promised: 5, term: 5, asked: true},
		"no failover, a promise of an old term": {promised: 4, term: 5},
	} {
		r := New(Options{Cluster: naming.Cluster("db"), Instance: "db-1", Incarnation: "x"}, nil, logr.Discard())
		r.facts.Config = &contract.Config{Members: []string{"db-0", "db-1"}, FailoverEnabled: tc.failover}
		r.facts.Lease = lease.Lease{Holder: "db-0_x", Term: tc.term}
		r.memory.Promised = tc.promised
		if primary, _, _ := r.audience(); (primary == "db-0") != tc.asked {
			t.Errorf("%s: asks %q", name, primary)
		}
	}
}

// TestVoteWithoutPostgres: an instance that cannot tell how far its log goes promises nothing.
func TestVoteWithoutPostgres(t *testing.T) {
	r := New(Options{Cluster: naming.Cluster("db"), Instance: "db-1"}, nil, logr.Discard())
	r.facts.Config = &contract.Config{Members: []string{"db-0", "db-1", "db-2"}}
	r.view.recall("db-1", memory{})
	q := election.VoteRequest{Candidate: "db-2", SystemID: "7", Term: 5, Free: true}
	for name, change := range map[string]func(){
		"before the volume is known": func() {},
		"an empty volume":            func() { r.locked, r.facts.Data = true, agent.Data{Known: true} },
		"torn data": func() {
			r.facts.Data.Data = lease.Data{Present: true, SystemID: "7", Torn: true}
		},
		"no PostgreSQL": func() { r.facts.Data.Data = lease.Data{Present: true, SystemID: "7", Replica: true} },
	} {
		change()
		vote := r.Vote(t.Context(), q)
		if vote.Granted || vote.Complete || vote.Detached || vote.Refusal == "" || vote.Promised != 0 || r.memory.Promised != 0 {
			t.Errorf("%s: %+v", name, vote)
		}
	}
}
