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
