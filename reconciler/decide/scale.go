package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// replicas keeps the primary among the instances: a StatefulSet removes the highest ordinals first. A primary that would
// be removed hands over first. Until then, and while nobody is known to have the newest data, all stay. The agents are told
// first that there will be fewer, and the pods go when the primary says that the Lease names them no more.
func (p *Plan) replicas(s *snapshot.Cluster, now time.Time) {
	wanted, live := s.WantedReplicas(), s.LiveReplicas()
	p.Replicas, p.Members = wanted, wanted
	if live <= wanted {
		return
	}
	primary, known := s.Primary()
	switch {
	case !known && p.SystemID == "":
		// No database was ever made, so none is lost.
	case !known:
		p.Replicas = live // Any may have what the others lack. That there is no primary passes, or is a trouble of its own.
	case !primary.Ready():
		p.Replicas = live
		p.waitForPrimary(s, wanted, fmt.Sprintf("spec.replicas is lower; waits until the primary %s serves", primary.Name))
	case primary.Ordinal >= wanted && p.Apply:
		p.moveDown(s, primary, now)
	case primary.Ordinal >= wanted:
		p.Replicas = live
	}
	p.Members = p.Replicas
	if known && p.Members < live && stillNamed(s, primary, p.Members) {
		p.Replicas = live
		p.waitForPrimary(s, p.Members, fmt.Sprintf("spec.replicas is lower; waits until the primary %s counts on it no more", primary.Name))
	}
	for ordinal := live - 1; ordinal >= p.Replicas; ordinal-- {
		p.step(s.Names().Instance(ordinal), ActionRemove, "spec.replicas is lower")
	}
}

// stillNamed says that the Lease names an instance beyond the members. It is taken away only when its word cannot be needed
// any more for an election: commits may have waited for it alone.
func stillNamed(s *snapshot.Cluster, primary snapshot.Instance, members int32) bool {
	return slices.ContainsFunc(primary.Report.Named, func(name string) bool {
		ordinal, ok := s.Names().Ordinal(name)
		return ok && ordinal >= members
	})
}

// moveDown has a primary that is to be removed hand over to an instance that stays.
func (p *Plan) moveDown(s *snapshot.Cluster, primary snapshot.Instance, now time.Time) {
	wanted := p.Replicas
	over := p.handOver(s, fmt.Sprintf("remove %s for spec.replicas %d", primary.Name, wanted), wanted, now)
	if p.moving() {
		p.Replicas = s.LiveReplicas()
		p.waitForPrimary(s, wanted, "spec.replicas is lower; waits for another primary")
		return
	}
	p.Blocks = append(p.Blocks, Block{v1alpha1.ReasonScaleDownBlocked, fmt.Sprintf(
		"cannot scale down to %d because instance %s is the primary and would be removed, and no other can take over: %s; "+
			"it goes on when one can, or set spec.replicas to %d", wanted, primary.Name, over.Message, primary.Ordinal+1)})
	p.Replicas = min(s.LiveReplicas(), primary.Ordinal+1)
}

// waitForPrimary tells of instances that are removed later.
func (p *Plan) waitForPrimary(s *snapshot.Cluster, wanted int32, reason string) {
	for ordinal := s.LiveReplicas() - 1; ordinal >= wanted; ordinal-- {
		p.step(s.Names().Instance(ordinal), ActionWait, reason)
	}
}
