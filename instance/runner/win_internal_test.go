package runner

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// mumbling does what is asked, and its answers get lost.
type mumbling struct{ *leaseKube }

var errLost = errors.New("the answer got lost")

func (k mumbling) UpdateLease(ctx context.Context, l lease.Lease, d time.Duration) (lease.Lease, error) {
	if _, err := k.leaseKube.UpdateLease(ctx, l, d); err != nil {
		return lease.Lease{}, err
	}
	return lease.Lease{}, errLost
}

// TestWin has the Lease change between the votes and the attempt to take it.
func TestWin(t *testing.T) {
	renew := func(l *lease.Lease) { l.WALLSN++ }
	another := func(l *lease.Lease) { *l = l.Taken("db-2_x") }
	for name, tc := range map[string]struct {
		change    func(l *lease.Lease)
		reread    bool
		suspected bool
		won       bool
	}{
		"unchanged":                   {won: true},
		"renewed":                     {change: renew},
		"renewed, and known":          {change: renew, reread: true},
		"suspected, renewed":          {change: renew, suspected: true, won: true},
		"suspected, renewed, known":   {change: renew, suspected: true, reread: true, won: true},
		"taken by another":            {change: another},
		"suspected, taken by another": {change: another, suspected: true},
		"suspected, taken and known":  {change: another, suspected: true, reread: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := &leaseKube{lease: lease.Lease{Version: "first", Holder: "db-1_x", Term: 3, SystemID: "7"}}
			r := adopter(t, api)
			seen := r.keeper.last
			if tc.change != nil {
				api.edit(tc.change)
			}
			if tc.reread {
				if err := r.keeper.read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			next := seen.Taken(r.keeper.identity)
			next.Term = 9
			won, err := r.keeper.Win(t.Context(), next, seen, tc.suspected)
			if err != nil || won != tc.won {
				t.Fatalf("won %t, %v", won, err)
			}
			if taken := api.lease.Holder == r.keeper.identity; taken != tc.won || (r.facts.Elected == 9) != tc.won {
				t.Errorf("elected in term %d, the Lease is %+v", r.facts.Elected, api.lease)
			}
		})
	}
}

// TestLoserDoesNotWaitForTheAPIServer: what a candidate does ends with its campaign, also while somebody else asks the
// API server.
func TestLoserDoesNotWaitForTheAPIServer(t *testing.T) {
	r := adopter(t, &leaseKube{lease: lease.Lease{Version: "first", Holder: "db-1_x", Term: 3, SystemID: "7"}})
	seen := r.keeper.last
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	r.keeper.mu.Lock()
	defer r.keeper.mu.Unlock()
	go func() {
		_, err := r.keeper.candidacy(ctx)
		ended <- err
	}()
	go func() {
		_, err := r.keeper.Win(ctx, seen.Taken(r.keeper.identity), seen, false)
		ended <- err
	}()
	cancel()
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v, want that it was cancelled", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("waits on")
		}
	}
}

// TestWinUnheard takes the Lease without hearing of it.
func TestWinUnheard(t *testing.T) {
	api := &leaseKube{lease: lease.Lease{Version: "first", Holder: "db-1_x", Term: 3, SystemID: "7"}}
	r := adopter(t, api)
	r.kube = mumbling{api}
	seen := r.keeper.last
	if won, err := r.keeper.Win(t.Context(), seen.Taken(r.keeper.identity), seen, false); won || !errors.Is(err, errLost) {
		t.Fatalf("won %t, %v", won, err)
	}
	if r.facts.Elected != 0 {
		t.Error("elected before it is known")
	}
	if _, err := r.keeper.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.facts.Elected != 4 || r.facts.HeldTerm != 4 {
		t.Errorf("elected in term %d, held %d", r.facts.Elected, r.facts.HeldTerm)
	}
}

// TestTakeAboveAll takes a Lease that was made anew by an instance that knows later terms.
func TestTakeAboveAll(t *testing.T) {
	api := &leaseKube{lease: lease.Lease{Version: "first"}}
	r := adopter(t, api)
	r.memory.SeenTerm = 6
	if err := r.keeper.Take(t.Context(), r.facts.Lease); err != nil {
		t.Fatal(err)
	}
	if api.lease.Term != 7 || r.facts.LedTerm != 7 {
		t.Errorf("led term %d, the Lease is %+v", r.facts.LedTerm, api.lease)
	}
}
