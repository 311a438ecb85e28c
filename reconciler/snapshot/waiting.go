package snapshot

import (
	"time"

	"github.com/acme/pg-operator/instance/contract"
)

// WaitingGrace is how long a cluster may be without a primary, and its instances say why, before somebody is called.
const WaitingGrace = time.Minute

// Waiting is the first instance that says why nobody takes over; none while an instance serves as the primary. One that
// waits for another one to take over knows less than that one does.
func (c *Cluster) Waiting() (instance Instance, found bool) {
	if primary, known := c.Primary(); known && primary.Ready() {
		return Instance{}, false
	}
	for _, candidate := range c.Instances {
		if candidate.Pod == nil || candidate.Report == nil || candidate.Report.Waiting == "" {
			continue
		}
		if candidate.Report.Waiting != contract.WaitingForElection {
			return candidate, true
		}
		if !found {
			instance, found = candidate, true
		}
	}
	return instance, found
}

// WaitingLate says that the instances wait for too long; if they do not yet, for how much longer they may.
func (c *Cluster) WaitingLate(now time.Time) (late bool, wait time.Duration) {
	instance, found := c.Waiting()
	if !found || instance.Report.WaitingSince.IsZero() {
		return false, 0
	}
	wait = WaitingGrace - now.Sub(instance.Report.WaitingSince)
	return wait <= 0, max(wait, 0)
}
