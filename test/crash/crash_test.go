package crash_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// perFlow is how many points of each flow are tried without -every-write: what a minute of all tests' time is worth.
const perFlow = 1

// points are where to crash in a flow of so many writes: at none of them (the operator is not there when the user acts),
// and before and after each.
func points(name string, writes int) []point {
	all := []point{{write: 0}}
	for write := 1; write <= writes; write++ {
		all = append(all, point{write, true}, point{write, false})
	}
	if *everyWrite || len(all) <= perFlow {
		return all
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	random := rand.New(rand.NewPCG(*seed, hash.Sum64()))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:perFlow]
}

func (p point) String() string {
	switch {
	case p.write == 0:
		return "not there"
	case p.before:
		return fmt.Sprintf("before write %d", p.write)
	default:
		return fmt.Sprintf("after write %d", p.write)
	}
}

// TestCrashAtAnyWriteEndsInTheSameState ends the operator at points of every flow. Whatever it had done by then, its
// successor brings about the very state that an operator does which never crashes.
func TestCrashAtAnyWriteEndsInTheSameState(t *testing.T) {
	var tried, crashed, same, writes atomic.Int32
	t.Run("flows", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(flows)) {
			f := flows[name]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want := f.through(t, never, "")
				f.check(t, want.state)
				writes.Add(int32(want.writes))
				for _, p := range points(name, want.writes) {
					t.Run(p.String(), func(t *testing.T) {
						t.Parallel()
						tried.Add(1)
						got := f.through(t, p, want.state)
						f.check(t, got.state)
						if got.crashed {
							crashed.Add(1)
						}
						if got.state != want.state && !f.anyVolumes {
							t.Errorf("the state differs from that without a crash:\n%s", difference(got.state, want.state))
							return
						}
						same.Add(1)
					})
				}
			})
		}
	})
	t.Logf("%d flows of %d writes: %d points tried, crashed at %d (the others came to fewer writes), %d ended in the same state",
		len(flows), writes.Load(), tried.Load(), crashed.Load(), same.Load())
}

// check proves that a flow, crashed or not, did what it is for.
func (f *flow) check(t *testing.T, state string) {
	t.Helper()
	for _, text := range f.has {
		if !strings.Contains(state, text) {
			t.Errorf("the end lacks %q:\n%s", text, state)
		}
	}
	for _, text := range f.lacks {
		if strings.Contains(state, text) {
			t.Errorf("the end has %q:\n%s", text, state)
		}
	}
	if strings.Contains(state, "uid of nothing") {
		t.Errorf("the end has an orphan:\n%s", state)
	}
}
