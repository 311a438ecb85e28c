package election

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	schedules = flag.Uint64("schedules", 15000, "how many schedules TestSimulation runs")
	first     = flag.Uint64("first", 1, "seed of the first schedule; the others follow")
	seed      = flag.Uint64("seed", 0, "run only the schedule of this seed, and print all that happens")
)

// TestSimulation runs schedules of faults, each of its own seed.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		if problem := newWorld(*seed, sabotage{}, func(line string) { fmt.Println(line) }).schedule(); problem != "" {
			t.Fatal(problem)
		}
		return
	}
	found, problem, seen := simulate(*first, *schedules, sabotage{})
	t.Logf("%d schedules: %s", *schedules, seen)
	if problem != "" {
		t.Fatalf("seed %d: %s\nreplay: go test ./instance/election -run 'TestSimulation$' -v -seed %d", found, problem, found)
	}
}

// simulate runs schedules until one shows a problem, on all processors. seen counts what happened in them.
func simulate(from, number uint64, s sabotage) (seed uint64, problem string, seen tally) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // Each schedule is garbage soon.
	var next atomic.Uint64
	next.Store(from)
	var mu sync.Mutex
	var workers sync.WaitGroup
	seen = tally{}
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			mine := tally{}
			for {
				current := next.Add(1) - 1
				if current >= from+number {
					break
				}
				w := newWorld(current, s, nil)
				w.seen = mine
				if p := w.schedule(); p != "" {
					mu.Lock()
					if problem == "" || current < seed {
						seed, problem = current, p
					}
					mu.Unlock()
					next.Store(from + number)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range mine {
				seen[what] += n
			}
		})
	}
	workers.Wait()
	return seed, problem, seen
}

// tally counts what happened in schedules.
type tally map[string]int

func (t tally) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, t[what]))
	}
	return strings.Join(parts, ", ")
}

// TestSabotage breaks one rule at a time: the simulation must find out.
func TestSabotage(t *testing.T) {
	for name, tc := range map[string]struct {
		sabotage
		// within is how many schedules that takes at most.
		within uint64
	}{
		"one vote fewer":                                 {sabotage{fewerVotes: true}, 1000},
		"promises that are forgotten":                    {sabotage{forgetPromises: true}, 3000},
		"voters that go on streaming":                    {sabotage{stayAttached: true}, 3000},
		"a licence that lasts too long":                  {sabotage{lateFence: true}, 3000},
		"holders that do not take no for an answer":      {sabotage{ignoreRefusals: true}, 50000},
		"no joint record":                                {sabotage{noJoint: true}, 3000},
		"a record narrowed before replicas have the log": {sabotage{unsettled: true}, 10000},
		"timelines with numbers as PostgreSQL chooses":   {sabotage{anyTimeline: true}, 3000},
		"a release while the licence goes on":            {sabotage{releaseLate: true}, 3000},
		"promises to hold still that are forgotten":      {sabotage{forgetHolds: true}, 3000},
		"candidates that wait too short":                 {sabotage{impatient: true}, 3000},
		"a new quorum without the former primary":        {sabotage{narrowTake: true}, 10000},
		"candidates that do not look who has more":       {sabotage{blind: true}, 3000},
		"candidates that do not look at timelines":       {sabotage{anyBranch: true}, 10000},
		"no doubt about writes without an answer":        {sabotage{noDoubt: true}, 50000},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.within > *schedules {
				t.Skipf("takes up to %d schedules", tc.within)
			}
			found, problem, _ := simulate(*first, tc.within, tc.sabotage)
			if problem == "" {
				t.Fatal("not found out")
			}
			t.Logf("seed %d: %s", found, problem)
		})
	}
}
