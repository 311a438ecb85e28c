package election

import (
	"slices"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// flaps lets standby c come for a while and leave, time and again, and b stream all along. It counts how often c leaves
// while commits wait for it, or for others that b alone does not make up for.
func flaps(wanted Durability, damp bool, up, down, total time.Duration) (departures, stalls int) {
	f := SyncFacts{Wanted: wanted, Others: []string{"b", "c"}}
	var damping Damping
	for now := time.Duration(0); now < total; now += second {
		if f.Streaming = []string{"b"}; now%(up+down) < up {
			f.Streaming = append(f.Streaming, "c")
		} else if now%(up+down) == up {
			departures++
			if !f.met(f.Applied) {
				stalls++
			}
		}
		if damped := damping.Look(now, f.Streaming); damp {
			f.Damped = damped
		}
		f.Settled = true
		for range 3 {
			step := NextSync(f)
			if step.Record != nil {
				f.Record = *step.Record
			}
			if step.Apply != nil {
				f.Applied = *step.Apply
			}
		}
	}
	return departures, stalls
}

// TestDamping: commits seldom wait for a standby that is about to leave again.
func TestDamping(t *testing.T) {
	preferred, required := Durability{Number: 2}, Durability{Number: 1, Required: true}
	if departures, stalls := flaps(preferred, false, 10*second, 3*second, time.Hour); stalls < departures-1 {
		t.Fatalf("%d of %d departures have commits wait without damping: the test tests nothing", stalls, departures)
	}
	for name, tc := range map[string]struct {
		wanted   Durability
		up, down time.Duration
		most     int
	}{
		"flapping":                  {wanted: preferred, up: 10 * second, down: 3 * second, most: 2},
		"flapping slowly":           {wanted: preferred, up: 50 * second, down: 10 * second, most: 5},
		"required, another streams": {wanted: required, up: 10 * second, down: 3 * second},
	} {
		departures, stalls := flaps(tc.wanted, true, tc.up, tc.down, time.Hour)
		if departures < 50 || stalls > tc.most {
			t.Errorf("%s: %d of %d departures have commits wait, want %d at most", name, stalls, departures, tc.most)
		}
	}
}

// TestDamped: a standby is trusted at first, less each time it leaves, and again once it stayed.
func TestDamped(t *testing.T) {
	var d Damping
	look := func(at time.Duration, streaming ...string) []string { return d.Look(at, streaming) }
	// visit has b come and leave at once, and tells after how long it would count.
	now := time.Duration(0)
	visit := func() time.Duration {
		begin := now
		for now += second; slices.Contains(look(now, "a", "b"), "b"); now += second {
		}
		took := now - begin - second
		now += second
		look(now, "a")
		return took
	}
	for i, want := range []time.Duration{0, dampMin, 2 * dampMin, 4 * dampMin, 8 * dampMin, dampMax, dampMax} {
		if got := visit(); got != want {
			t.Errorf("visit %d: counts after %s, want %s", i, got, want)
		}
	}
	look(now+second, "a", "b")
	look(now+second+steadyAfter, "a")
	now += second + steadyAfter
	if got := visit(); got != 0 {
		t.Errorf("after it stayed: counts after %s", got)
	}
	if damped := look(now, "a"); len(damped) > 0 {
		t.Errorf("damped: %v", damped)
	}
}

// TestDampedRequired: what is required is had with whoever streams.
func TestDampedRequired(t *testing.T) {
	f := SyncFacts{
		Wanted: Durability{Number: 1, Required: true}, Others: []string{"b", "c"},
		Streaming: []string{"c"}, Damped: []string{"c"},
		Record: lease.Sync{Required: true, InForce: quorums("required ANY 1 (b); ANY 1 (c)")}, Applied: quorum("ANY 1 (b)"),
	}
	if got := stepText(NextSync(f)); got != "apply ANY 1 (c)" {
		t.Errorf("got %q", got)
	}
	f.Wanted.Required, f.Record.Required = false, false
	if got := stepText(NextSync(f)); got != "record " {
		t.Errorf("preferred: got %q", got)
	}
}
