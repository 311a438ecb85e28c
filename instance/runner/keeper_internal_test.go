package runner

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// leaseKube is an API server with nothing but a Lease.
type leaseKube struct {
	Kube
	mu     sync.Mutex
	lease  lease.Lease
	writes int
	// replaced: another pod took the place of the agent's.
	replaced bool
	// err is what every call for the Lease fails with.
	err error
}

func (k *leaseKube) Current(context.Context) error {
	if k.replaced {
		return kube.ErrReplaced
	}
	return nil
}

func (k *leaseKube) Lease(context.Context) (lease.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease, k.err
}

func (k *leaseKube) UpdateLease(_ context.Context, l lease.Lease, _ time.Duration) (lease.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return lease.Lease{}, k.err
	}
	if l.Version != k.lease.Version {
		return lease.Lease{}, kube.ErrConflict
	}
	k.writes++
	l.Version = strconv.Itoa(k.writes)
	k.lease = l
	return l, nil
}

// fail has every call fail from now on, or none.
func (k *leaseKube) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// edit is a write of somebody else's.
func (k *leaseKube) edit(change func(l *lease.Lease)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.lease)
	k.lease.Version += "+"
}

// adopter is an agent with a former primary's data, which is to take a Lease that is free.
func adopter(t *testing.T, api *leaseKube) *Runner {
	t.Helper()
	r := New(Options{Cluster: "db", Instance: "db-0", Incarnation: "me"}, api, logr.Discard())
	r.facts.Config = &contract.Config{Version: "17", Members: []string{"db-0", "db-1"}, LeaseDurationSeconds: 10}
	r.facts.Programs = postgres.ServerVersion{Major: "17"}
	r.facts.Data = agent.Data{Known: true, Major: "17", Data: lease.Data{Present: true, SystemID: "7"}}
	if _, err := r.keeper.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// finish waits for the running task's end.
func (r *Runner) finish(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		r.mu.Lock()
		running := r.facts.Running
		r.mu.Unlock()
		if running == agent.TaskNone {
			return
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			t.Fatalf("task %s does not end", running)
		}
	}
}

// TestTake has the Lease change between the decision to take it and the attempt.
func TestTake(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(l *lease.Lease)
		// reread: the change was read before the attempt, so that its version is the right one.
		reread bool
		taken  bool
	}{
		"unchanged":                   {taken: true},
		"taken by another":            {change: func(l *lease.Lease) { l.Holder, l.Term = "db-1_x", 1 }},
		"taken by another, and known": {change: func(l *lease.Lease) { l.Holder, l.Term = "db-1_x", 1 }, reread: true},
		"taken and emptied, known":    {change: func(l *lease.Lease) { l.Term = 1 }, reread: true},
		"another database, known":     {change: func(l *lease.Lease) { l.SystemID = "8" }, reread: true},
		"touched":                     {change: func(*lease.Lease) {}},
		"touched, and known":          {change: func(*lease.Lease) {}, reread: true, taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := &leaseKube{lease: lease.Lease{Version: "first"}}
			r := adopter(t, api)
			r.keeper.mu.Lock() // Holds the attempt up.
			r.step(t.Context())
			if r.decision.Do != agent.TaskTake {
				t.Fatalf("decided %+v", r.decision)
			}
			if tc.change != nil {
				api.edit(tc.change)
			}
			if tc.reread {
				if err := r.keeper.read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			r.keeper.mu.Unlock()
			r.finish(t)
			if taken := api.lease.Holder == "db-0_me"; taken != tc.taken || api.writes > 0 != tc.taken {
				t.Errorf("the Lease is %+v after %d writes", api.lease, api.writes)
			}
			if !r.facts.Lease.Same(api.lease) || len(r.facts.Failed.Message) > 0 {
				t.Errorf("the agent believes %+v (%+v), the Lease is %+v", r.facts.Lease, r.facts.Failed, api.lease)
			}
		})
	}
}

// TestRestored has the API server restored from a copy in which this incarnation held the Lease once: it was replaced since.
func TestRestored(t *testing.T) {
	api := &leaseKube{lease: lease.Lease{Version: "first", Holder: "db-1_x", Term: 7, SystemID: "7", Members: []string{"db-0", "db-1"}}}
	r := adopter(t, api)
	r.facts.Data.Replica, r.facts.Elected = true, 3
	api.edit(func(l *lease.Lease) {
		l.Holder, l.Term, l.Released, l.ReleasedBy = r.keeper.identity, 3, 9, "db-1_w"
		l.Sync = lease.Sync{Required: true, InForce: []lease.Quorum{{Number: 1, Standbys: []string{"db-0"}}}}
	})
	if _, err := r.keeper.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := r.facts.Lease; l.Holder != "" || l.ReleasedBy != "" || l.Sync.Synchronous() || r.memory.SeenTerm != 7 {
		t.Errorf("believes %+v, term %d", l, r.memory.SeenTerm)
	}
	if taken := r.keeper.taken(); taken.Term != 8 {
		t.Errorf("would take term %d", taken.Term)
	}
}

// TestTwin has a later incarnation take the Lease from one that was cut off.
func TestTwin(t *testing.T) {
	api := &leaseKube{lease: lease.Lease{Version: "first"}}
	r := adopter(t, api)
	r.step(t.Context())
	r.finish(t)
	if r.facts.HeldTerm != 1 {
		t.Fatalf("after taking it in term 1: %+v", r.facts)
	}
	api.edit(func(l *lease.Lease) { *l = l.Taken("db-0_later") })
	if _, err := r.keeper.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.facts.Server = agent.Server{Up: true, Accepting: true}
	r.step(t.Context())
	r.finish(t)
	if r.decision.Do != agent.TaskFence || api.lease.Holder != "db-0_later" {
		t.Errorf("does %+v, the Lease is %+v", r.decision, api.lease)
	}
}

// TestTakeAfterPod has an incarnation that never held the Lease look at one whose pod may be its successor's.
func TestTakeAfterPod(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		api := &leaseKube{lease: lease.Lease{Version: "first", Holder: "db-0_other", Term: 4}, replaced: replaced}
		r := adopter(t, api)
		r.step(t.Context())
		r.finish(t)
		if taken := api.lease.Holder == "db-0_me"; taken == replaced {
			t.Errorf("pod replaced: %t, the Lease is %+v", replaced, api.lease)
		}
		r.facts.Server = agent.Server{Up: true, Accepting: true}
		r.step(t.Context())
		if fences := r.decision.Do == agent.TaskFence; fences != replaced {
			t.Errorf("pod replaced: %t, then does %+v", replaced, r.decision)
		}
		r.finish(t)
	}
}

// TestLeaseMissing takes the Lease away from its holder, and gives it a new one.
func TestLeaseMissing(t *testing.T) {
	api := &leaseKube{lease: lease.Lease{Version: "first"}}
	r := adopter(t, api)
	r.step(t.Context())
	r.finish(t)
	look := func(err error, missing bool) {
		t.Helper()
		api.err = err
		if _, got := r.keeper.look(t.Context()); !errors.Is(got, err) {
			t.Errorf("got %v, want %v", got, err)
		}
		if r.report(r.decision).LeaseMissing != missing {
			t.Errorf("after %v reports %t", err, !missing)
		}
	}
	look(nil, false)
	look(kube.ErrNoLease, true)
	look(context.DeadlineExceeded, true)
	api.lease = lease.Lease{Version: "made again"}
	look(nil, false)
}
