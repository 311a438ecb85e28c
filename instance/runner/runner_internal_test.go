package runner

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/postgres"
)

func TestNextOrder(t *testing.T) {
	restart := func(id, instance string) contract.Order {
		return contract.Order{ID: id, Instance: instance, Kind: contract.OrderRestart}
	}
	for name, tc := range map[string]struct {
		orders []contract.Order
		last   string
		want   string
	}{
		"none":                   {},
		"first":                  {orders: []contract.Order{restart("1", "a")}, want: "1"},
		"done":                   {orders: []contract.Order{restart("1", "a")}, last: "1"},
		"another's":              {orders: []contract.Order{restart("1", "b")}},
		"one more":               {orders: []contract.Order{restart("1", "a"), restart("2", "b"), restart("3", "a")}, last: "1", want: "3"},
		"two become one":         {orders: []contract.Order{restart("1", "a"), restart("2", "a")}, want: "2"},
		"newest done":            {orders: []contract.Order{restart("1", "a"), restart("2", "a")}, last: "2"},
		"last one is forgotten":  {orders: []contract.Order{restart("5", "a")}, last: "4", want: "5"},
		"kind that is not known": {orders: []contract.Order{{ID: "1", Instance: "a", Kind: "Dance"}}},
	} {
		if got := nextOrder(tc.orders, "a", tc.last); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestCloneWait(t *testing.T) {
	for clones, want := range map[int]time.Duration{
		1: time.Minute, 2: 2 * time.Minute, 5: 16 * time.Minute, 6: 30 * time.Minute, 1000: 30 * time.Minute,
	} {
		if got := cloneWaitAfter(clones); got != want {
			t.Errorf("after %d clones waits %v, want %v", clones, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{}, nil, logr.Discard())
		for n := 1; n <= 3; n++ {
			r.cloned()
			time.Sleep(cloneWaitAfter(n) - time.Second)
			if synctest.Wait(); !r.facts.Repairs.Waiting || r.facts.Repairs.Clones != n {
				t.Errorf("just before the next clone is due: %+v", r.facts.Repairs)
			}
			r.facts.Repairs.Rewinds++
			time.Sleep(2 * time.Second)
			if synctest.Wait(); r.facts.Repairs.Waiting {
				t.Errorf("after the wait: %+v", r.facts.Repairs)
			}
		}
	})
}

// TestExpecting ends a process, or fails to; only in the latter case another end of it is news.
func TestExpecting(t *testing.T) {
	failure := errors.New("not permitted")
	for name, tc := range map[string]struct {
		err   error
		ended bool
		want  bool
	}{
		"ended":                {ended: true, want: true},
		"ended, with an error": {err: failure, ended: true, want: true},
		"goes on":              {err: failure},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{}, nil, logr.Discard())
			done := make(chan struct{})
			err := r.expecting(done, func() error {
				if !r.expected {
					t.Error("not expected while it is being ended")
				}
				if tc.ended {
					close(done)
				}
				return tc.err
			})
			if !errors.Is(err, tc.err) || r.expected != tc.want {
				t.Errorf("expected %t after %v", r.expected, err)
			}
		})
	}
}

// TestSettingsFailed goes through the settings that are tried when PostgreSQL does not start.
func TestSettingsFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		good *goodSettings
		// want are the hashes in force at each attempt until there is nothing else to try.
		want []string
	}{
		"nothing known to be good": {want: []string{"new", ""}},
		"others are good":          {good: &goodSettings{Hash: "old"}, want: []string{"new", "old"}},
		"these are good":           {good: &goodSettings{Hash: "new"}, want: []string{"new"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{Instance: "db-0"}, nil, logr.Discard())
			r.facts.Config = &contract.Config{Version: "17", SettingsHash: "new"}
			r.memory.Good = tc.good
			var got []string
			for more := true; more; more = r.settingsFailed("it did not like them") {
				if blamed := len(r.settings.errors()) > 0; blamed != (len(got) > 0) {
					t.Errorf("before attempt %d the errors are %q", len(got), r.settings.errors())
				}
				_, r.settings.inForce = r.configuration(r.upstreamEndpoint())
				got = append(got, r.settings.inForce)
			}
			if len(got) != len(tc.want) {
				t.Fatalf("tried %q, want %q", got, tc.want)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Errorf("tried %q, want %q", got, tc.want)
				}
			}
			if len(r.settings.errors()) > 0 {
				t.Errorf("the settings are blamed though no others start: %q", r.settings.errors())
			}
			r.facts.Config.SettingsHash = "newer"
			if _, hash := r.configuration(r.upstreamEndpoint()); hash != "newer" || len(r.settings.errors()) > 0 {
				t.Errorf("new settings are not tried: %q, %q", hash, r.settings.errors())
			}
		})
	}
}

// TestRefusedHBA starts with lines of pg_hba.conf that PostgreSQL does not start with.
func TestRefusedHBA(t *testing.T) {
	good := []string{"good"}
	for name, tc := range map[string]struct{ known, want []string }{
		"others are good":          {good, good},
		"nothing known to be good": {nil, postgres.ClosedHBA()},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{Instance: "db-0"}, nil, logr.Discard())
			r.facts.Config = &contract.Config{Version: "17", SettingsHash: "new", HBA: []string{"bad"}}
			r.memory.HBA, r.memory.Good = tc.known, &goodSettings{Hash: "new"}
			c, _ := r.configuration(r.upstreamEndpoint())
			if !slices.Equal(c.HBA, r.facts.Config.HBA) {
				t.Fatalf("first %q", c.HBA)
			}
			if !r.settingsFailed("could not load /data/pg_hba.conf") || len(r.settings.errors()) != 1 {
				t.Fatalf("nothing else to try, or nothing blamed: %q", r.settings.errors())
			}
			c, inForce := r.configuration(r.upstreamEndpoint())
			if !slices.Equal(c.HBA, tc.want) || inForce != "new" {
				t.Errorf("then %q, settings %q", c.HBA, inForce)
			}
			r.facts.Config = &contract.Config{Version: "17", SettingsHash: "newer", HBA: []string{"better"}}
			if c, _ = r.configuration(r.upstreamEndpoint()); c.HBA[0] != "better" || len(r.settings.errors()) > 0 {
				t.Errorf("new lines are not tried: %q, %q", c.HBA, r.settings.errors())
			}
		})
	}
}
