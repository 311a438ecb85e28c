package runner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
)

// publicKube has what an agent shows of itself, which others may change.
type publicKube struct {
	Kube
	mu            sync.Mutex
	served        bool
	label, report string
	term          int32
	err           error
}

func (k *publicKube) Serve(_ context.Context, _ int32, ready bool, term int32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.served, k.term = ready, term
	}
	return k.err
}

func (k *publicKube) Publish(_ context.Context, report, label string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.report, k.label = report, label
	}
	return k.err
}

func (k *publicKube) Lease(context.Context) (lease.Lease, error) { return lease.Lease{}, k.err }

// forge is what somebody else writes: no endpoint, and a wrong pod.
func (k *publicKube) forge() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.served, k.report, k.label = false, "forged", "forged"
}

// right tells whether the Service leads here, and whether the pod is as the agent wants it.
func (k *publicKube) right() (serves, pod bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.served, k.label == "primary" && k.report != "forged"
}

// TestPublisherInsists has somebody else change what a publisher wrote.
func TestPublisherInsists(t *testing.T) {
	for name, tc := range map[string]struct {
		serve bool
		after time.Duration
		doubt bool
		// serves and pod are what is right again.
		serves, pod bool
	}{
		"primary, too early":      {serve: true, after: serveAgain - time.Second},
		"primary, endpoint":       {serve: true, after: serveAgain + time.Second, serves: true},
		"primary, all":            {serve: true, after: publishAgain + time.Second, serves: true, pod: true},
		"primary, in doubt":       {serve: true, doubt: true, serves: true, pod: true},
		"not serving, all":        {after: publishAgain + time.Second, pod: true},
		"not serving, in doubt":   {doubt: true, pod: true},
		"not serving, not so far": {after: serveAgain + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &publicKube{}
				p := New(Options{}, api, logr.Discard()).publisher
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go p.run(ctx)
				p.want(contract.Report{State: contract.StateRunning, Term: 1}, "primary", agent.Decision{Serve: tc.serve})
				synctest.Wait()
				if serves, pod := api.right(); serves != tc.serve || !pod {
					t.Fatalf("at first serves %t, pod right %t", serves, pod)
				}
				api.forge()
				if tc.doubt {
					p.doubt()
				}
				time.Sleep(tc.after)
				synctest.Wait()
				if serves, pod := api.right(); serves != tc.serves || pod != tc.pod {
					t.Errorf("serves %t, pod right %t", serves, pod)
				}
			})
		})
	}
}

// TestLeavingIsSaidInItsTerm: who stops may know of a later term already, in which the Service leads elsewhere.
func TestLeavingIsSaidInItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &publicKube{}
		p := New(Options{}, api, logr.Discard()).publisher
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.run(ctx)
		p.want(contract.Report{State: contract.StateRunning, Term: 4}, "primary", agent.Decision{Serve: true})
		synctest.Wait()
		for _, seen := range []int32{4, 5} {
			p.want(contract.Report{State: contract.StateStopping, Term: seen}, "", agent.Decision{State: contract.StateStopping, Leave: true})
			synctest.Wait()
			if api.served || api.term != 4 {
				t.Errorf("in term %d it leads here: %t, in term %d", seen, api.served, api.term)
			}
		}
	})
}

// TestNamed: whom the Lease names in any way, the operator must not remove for good.
func TestNamed(t *testing.T) {
	l := lease.Lease{Members: []string{"db-1", "db-0"}, Sync: lease.Sync{InForce: []lease.Quorum{
		{Number: 1, Standbys: []string{"db-2", "db-1"}}, {Number: 1, Standbys: []string{"db-1"}},
	}}}
	if names := named(l); !slices.Equal(names, []string{"db-0", "db-1", "db-2"}) || l.Members[0] != "db-1" {
		t.Errorf("names %v, members %v", names, l.Members)
	}
}

// TestReportOfADamagedRecord has somebody edit the Lease's record of the last failover: the rest of the report is still read.
func TestReportOfADamagedRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		record *lease.Failover
		told   bool
	}{
		"whole":          {record: &lease.Failover{From: "db-0", To: "db-1", Cause: contract.CauseLeaseExpired, Term: 3}, told: true},
		"no record":      {record: &lease.Failover{Cause: "annotation x of the Lease is no record of a failover"}},
		"a long story":   {record: &lease.Failover{To: "db-1", Term: 3, Cause: strings.Repeat("x", contract.MaxFailoverText+1)}},
		"a wrong number": {record: &lease.Failover{To: "db-1", Term: -3}},
	} {
		r := adopter(t, &leaseKube{lease: lease.Lease{Version: "first"}})
		r.facts.Lease.Failover = tc.record
		text, err := json.Marshal(r.report(agent.Decision{State: contract.StateRunning}))
		if err != nil {
			t.Fatal(err)
		}
		if read := contract.ParseReport(string(text)); read == nil || (read.LastFailover != nil) != tc.told {
			t.Errorf("%s: the operator reads %+v of %s", name, read, text)
		}
	}
}

// TestDoubtAfterOutage has the API server answer again.
func TestDoubtAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &publicKube{err: errors.New("down")}
		r := New(Options{}, api, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.keeper.run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.publisher.doubted) > 0 {
			t.Error("in doubt while the API server does not answer")
		}
		api.err = nil
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.publisher.doubted) != 1 {
			t.Error("not in doubt after an outage")
		}
	})
}
