package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/lease"
)

// TestReaffirm has members promise never to stream again from the term of a primary that goes on.
func TestReaffirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &leaseKube{lease: lease.Lease{Version: "first"}}
		r := holder(t, api)
		look := func(what string, want int32) {
			t.Helper()
			if _, err := r.keeper.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if l := api.lease; l.Term != want || l.Holder != "db-0_me" || r.facts.Lease.Term != want {
				t.Errorf("%s: the Lease is %+v, want term %d", what, l, want)
			}
		}
		r.notePromise("db-1", 1)
		look("does not lead yet", 1)
		r.facts.Server = agent.Server{Up: true, Accepting: true}
		look("leads", 2)
		if r.memory.LedTerm != 2 {
			t.Errorf("led in term %d by its memory", r.memory.LedTerm)
		}
		look("taken anew", 2)
		r.notePromise("stranger", 5)
		look("promised by nobody who counts", 2)
		r.notePromise("db-1", 4)
		look("too soon", 2)
		time.Sleep(time.Minute)
		look("later", 5)
	})
}
