package election

import (
	"flag"
	"fmt"
	"testing"
)

var (
	schedules = flag.Int("schedules", 5000, "how many schedules TestSimulation runs")
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
	for i := range *schedules {
		s := uint64(i + 1)
		if problem := newWorld(s, sabotage{}, nil).schedule(); problem != "" {
			t.Fatalf("seed %d: %s\nreplay: go test ./instance/election -run TestSimulation -seed %d -v", s, problem, s)
		}
	}
}

// TestSabotage breaks one rule at a time: the simulation must find out.
func TestSabotage(t *testing.T) {
	for name, s := range map[string]sabotage{
		"one vote fewer": {fewerVotes: true},
		"promises that no disk keeps, and nobody follows": {forgetPromises: true},
		"voters that go on streaming":                     {stayAttached: true},
		"a licence that lasts too long":                   {lateFence: true},
		"holders that do not take no for an answer":       {ignoreRefusals: true},
		"no joint record":                                 {noJoint: true},
		"a record narrowed before replicas have the log":  {unsettled: true},
		"timelines with numbers as PostgreSQL chooses":    {anyTimeline: true},
		"a release while the licence goes on":             {releaseLate: true},
		"no doubt about writes without an answer":         {noDoubt: true},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range uint64(*schedules * 20) {
				if problem := newWorld(i+1, s, nil).schedule(); problem != "" {
					t.Logf("seed %d: %s", i+1, problem)
					return
				}
			}
			t.Error("not found out")
		})
	}
}
