package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
)

// holder is an agent that holds the Lease in term 1.
func holder(t *testing.T, api *leaseKube) *Runner {
	t.Helper()
	r := adopter(t, api)
	if err := r.keeper.Take(t.Context(), api.lease); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGiveAway has the API server fail, and others write the Lease, while it is given up.
func TestGiveAway(t *testing.T) {
	down := errors.New("down")
	for name, tc := range map[string]struct {
		meanwhile func(api *leaseKube)
		holder    string
		failed    bool
		// soon: it is not tried again.
		soon bool
	}{
		"at once":         {},
		"after an outage": {meanwhile: func(api *leaseKube) { api.err = down; time.AfterFunc(5*time.Second, func() { api.fail(nil) }) }},
		"never":           {meanwhile: func(api *leaseKube) { api.err = down }, holder: "db-0_me", failed: true},
		"by a dead account": {
			meanwhile: func(api *leaseKube) { api.err = errors.Join(down, kube.ErrDismissed) }, holder: "db-0_me", failed: true, soon: true,
		},
		"edited":           {meanwhile: func(api *leaseKube) { api.edit(func(*lease.Lease) {}) }},
		"taken by another": {meanwhile: func(api *leaseKube) { api.edit(func(l *lease.Lease) { *l = l.Taken("db-1_x") }) }, holder: "db-1_x"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &leaseKube{lease: lease.Lease{Version: "first"}}
				r := holder(t, api)
				r.lastWritten = 90
				if tc.meanwhile != nil {
					tc.meanwhile(api)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begun := time.Now()
				err := r.keeper.GiveAway(ctx, 100, "db-1")
				if took := time.Since(begun); tc.soon && took > 0 {
					t.Errorf("took %s", took)
				}
				if (err != nil) != tc.failed || tc.failed && !errors.Is(err, down) {
					t.Errorf("got %v", err)
				}
				l := api.lease
				if l.Holder != tc.holder {
					t.Fatalf("the Lease is %+v", l)
				}
				if l.Holder == "" && (l.Released != 100 || l.Successor != "db-1" || l.WALLSN != 100 || l.ReleasedBy != "db-0_me" || l.Term != 1) {
					t.Errorf("the Lease is %+v", l)
				}
				if !tc.failed && !r.facts.Lease.Same(l) {
					t.Errorf("the agent believes %+v, the Lease is %+v", r.facts.Lease, l)
				}
			})
		})
	}
}

func TestHeirs(t *testing.T) {
	near := standbys{at: time.Now(), written: 1000, all: []pg.Standby{
		{Instance: "db-1", Streaming: true, Flushed: 950},
		{Instance: "db-2", Streaming: true, Flushed: 1000},
		{Instance: "db-3", Streaming: true, Flushed: 800},
		{Instance: "db-4", Flushed: 1000},
		{Instance: "stranger", Streaming: true, Flushed: 1000},
	}}
	for name, tc := range map[string]struct {
		change func(r *Runner, s *standbys)
		prefer string
		want   string
	}{
		"the nearest":     {want: "db-2"},
		"the preferred":   {prefer: "db-1", want: "db-1"},
		"lags too much":   {prefer: "db-3", want: "db-2"},
		"does not stream": {prefer: "db-4", want: "db-2"},
		"no member":       {prefer: "stranger", want: "db-2"},
		"as near, and keeps up": {want: "db-3", change: func(_ *Runner, s *standbys) {
			s.all = []pg.Standby{
				{Instance: "db-2", Streaming: true, Flushed: 1000, Replayed: 300},
				{Instance: "db-3", Streaming: true, Flushed: 1000, Replayed: 900},
			}
		}},
		"seen long ago":        {change: func(_ *Runner, s *standbys) { s.at = s.at.Add(-time.Minute) }},
		"no failover":          {change: func(r *Runner, _ *standbys) { r.facts.Config.FailoverEnabled = false }},
		"nobody was looked at": {change: func(_ *Runner, s *standbys) { *s = standbys{} }},
	} {
		r := adopter(t, &leaseKube{lease: lease.Lease{Version: "first"}})
		r.facts.Config = &contract.Config{
			Members: []string{"db-0", "db-1", "db-2", "db-3", "db-4"}, FailoverEnabled: true, MaxLagBytes: 100,
		}
		s := near
		if tc.change != nil {
			tc.change(r, &s)
		}
		if got := choose(r.heirs(s), tc.prefer); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		r.abandon(s, "killed")
		if abandoned := r.facts.Abandon != ""; abandoned != (tc.want != "") {
			t.Errorf("%s: gives up: %t", name, abandoned)
		}
		r.facts.Abandon = ""
		r.keeper.failing.Store(true)
		if r.abandon(s, "killed"); r.facts.Abandon != "" {
			t.Errorf("%s: gives up though the API server does not answer", name)
		}
	}
}

// TestSwitchoverOrder says when an order to hand over is carried out, and why not.
func TestSwitchoverOrder(t *testing.T) {
	order := contract.Order{ID: "9", Instance: "db-0", Kind: contract.OrderSwitchover, Target: "db-1", Term: 1}
	for name, tc := range map[string]struct {
		change  func(r *Runner, o *contract.Order)
		due     bool
		problem string
	}{
		"due":             {due: true},
		"carried out":     {change: func(r *Runner, _ *contract.Order) { r.memory.LastOrder = "9" }},
		"of another term": {change: func(_ *Runner, o *contract.Order) { o.Term = 7 }},
		"to another":      {change: func(_ *Runner, o *contract.Order) { o.Instance = "db-1" }},
		"to itself":       {change: func(_ *Runner, o *contract.Order) { o.Target = "db-0" }},
		"not the holder":  {change: func(r *Runner, _ *contract.Order) { r.facts.Lease.Holder = "db-1_x" }},
		"no failover":     {change: func(r *Runner, _ *contract.Order) { r.facts.Config.FailoverEnabled = false }, problem: "spec.failover.enabled"},
		"no API server":   {change: func(r *Runner, _ *contract.Order) { r.keeper.failing.Store(true) }, problem: "API server"},
		"lags":            {change: func(r *Runner, _ *contract.Order) { r.standbys.written = 5000 }, problem: "db-1 lacks 4050 bytes"},
		"away":            {change: func(_ *Runner, o *contract.Order) { o.Target = "db-2" }, problem: "db-2 does not stream"},
	} {
		r := holder(t, &leaseKube{lease: lease.Lease{Version: "first"}})
		r.facts.Config = &contract.Config{Members: []string{"db-0", "db-1", "db-2"}, FailoverEnabled: true, MaxLagBytes: 100}
		r.standbys = standbys{at: time.Now(), written: 1000, all: []pg.Standby{{Instance: "db-1", Streaming: true, Flushed: 950}}}
		o := order
		if tc.change != nil {
			tc.change(r, &o)
		}
		r.facts.Config.Orders = []contract.Order{o}
		r.refresh()
		wrong := r.orderProblem == "" && tc.problem != "" || !strings.Contains(r.orderProblem, tc.problem)
		if due := r.facts.SwitchoverOrder == "9"; due != tc.due || wrong {
			t.Errorf("%s: due %t, problem %q", name, due, r.orderProblem)
		}
		if tc.problem == "" && r.orderProblem != "" || r.report(agent.Decision{}).OrderProblem != r.orderProblem {
			t.Errorf("%s: problem %q, reports %q", name, r.orderProblem, r.report(agent.Decision{}).OrderProblem)
		}
	}
}
