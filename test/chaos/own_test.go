package chaos

import (
	"slices"
	"testing"
	"time"
)

func TestPulse(t *testing.T) {
	p := pulse{at: map[string]time.Time{}}
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, step := range []struct {
		ms   int
		a, b int
		want string
	}{
		{100000, 1, 1, "b"}, // the first look tells nothing
		{100200, 2, 1, "b"},
		{100400, 3, 2, ""},
		{102300, 4, 2, ""}, // not long enough
		{102500, 5, 2, "b"},
		{102700, 6, 3, ""},
	} {
		if got := p.silent(at(step.ms), map[string]int{"a": step.a, "b": step.b}, []string{"a", "b"}); got != step.want {
			t.Errorf("at %d ms %q is silent, want %q", step.ms, got, step.want)
		}
	}
}

// TestFaultsAreWellFormed: each can be named, and none is left out by a slip.
func TestFaultsAreWellFormed(t *testing.T) {
	var names []string
	for _, f := range faults {
		if f.name == "" || f.right == "" || f.start == nil || f.needs < 1 || f.outage == 0 || f.stays && (f.moves || f.once) {
			t.Errorf("%+v lacks something, or contradicts itself", f)
		}
		if slices.Contains(names, f.name) {
			t.Errorf("two faults are called %s", f.name)
		}
		names = append(names, f.name)
	}
}

// TestSeedOf: a run does not depend on those before it, and no two are alike.
func TestSeedOf(t *testing.T) {
	first := seedOf("3 async", "freeze", 0)
	if again := seedOf("3 async", "freeze", 0); again != first {
		t.Error("the same run has two seeds")
	}
	seeds := []uint64{first, seedOf("3 async", "freeze", 1), seedOf("3 async", "wipe", 0), seedOf("2 async", "freeze", 0)}
	slices.Sort(seeds)
	if len(slices.Compact(seeds)) != 4 {
		t.Errorf("two runs have one seed: %v", seeds)
	}
}

func TestShortLines(t *testing.T) {
	line := `{"level":"info","ts":1.2,"caller":"runner/a.go:1","msg":"Became the primary","term":2,"steps":"promoted 9ms"}`
	if got, want := short(line), "Became the primary steps=promoted 9ms term=2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := short("panic: x"); got != "panic: x" {
		t.Errorf("%q, want the line as it is", got)
	}
}
