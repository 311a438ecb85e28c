package localcluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often Wait looks; it bounds the precision of measured times.
const pollInterval = 200 * time.Millisecond

// Probe looks once. done ends the wait; seen says in words what there is, for the error at the deadline.
type Probe func(ctx context.Context) (done bool, seen string)

// Wait looks until the probe is done and returns how long that took. At the
// deadline the error says what was wanted and what was last seen.
func Wait(ctx context.Context, timeout time.Duration, what string, probe Probe) (time.Duration, error) {
	started := time.Now()
	last := "nothing"
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		done, seen := probe(ctx)
		if done || ctx.Err() == nil {
			last = seen // a look that the deadline cut off explains nothing
		}
		return done, nil
	})
	elapsed := time.Since(started)
	if err != nil {
		return elapsed, fmt.Errorf("%s: not within %s; last seen: %s", what, timeout, last)
	}
	return elapsed, nil
}
