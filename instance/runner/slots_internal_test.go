package runner

import (
	"maps"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

// TestReplicaKeeps: a replica keeps the log that its primary keeps, and nothing that nobody would release.
func TestReplicaKeeps(t *testing.T) {
	member := func(name string) *Runner {
		r := New(Options{Cluster: naming.Cluster("db"), Instance: name, Incarnation: "x"}, nil, logr.Discard())
		r.facts.Config = &contract.Config{Members: []string{"db-0", "db-1", "db-2"}}
		r.facts.Lease = lease.Lease{Holder: "db-0_x", Term: 5}
		return r
	}
	primary, replica := member("db-0"), member("db-1")
	primary.facts.Server = agent.Server{Up: true, Accepting: true}
	o := pg.Observation{Recovering: true, Redo: 50}
	tell := func() { replica.primaryKeeps(primary.Heartbeat("db-1", 0).Kept) }
	if tell(); replica.replicaKeeps(o, true) != nil {
		t.Error("a primary that does not know its slots yet has others release theirs")
	}
	primary.kept = map[string]postgres.LSN{"db-2": 10, "db-1": 90}
	tell()
	want := map[string]postgres.LSN{pg.SlotName(0): 50, pg.SlotName(1): 90, pg.SlotName(2): 10}
	if got := replica.replicaKeeps(o, true); !maps.Equal(got, want) {
		t.Errorf("keeps %v, want %v", got, want)
	}
	primary.kept = map[string]postgres.LSN{}
	tell()
	if got := replica.replicaKeeps(o, true); len(got) != 1 || got[pg.SlotName(0)] != 50 {
		t.Errorf("keeps %v, but the primary keeps nothing", got)
	}
	replica.keptAt = time.Now().Add(-2 * keptLife)
	if got := replica.replicaKeeps(o, false); len(got) != 1 {
		t.Errorf("keeps %v though nothing is received", got)
	}
	replica.begun = replica.keptAt
	if got := replica.replicaKeeps(o, true); got == nil || len(got) != 0 {
		t.Errorf("keeps %v though nobody tells any more", got)
	}
}
