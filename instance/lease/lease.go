// Package lease decides who may hold a cluster's Lease, and so who may be its
// primary. It is pure: facts in, verdict out.
package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acme/pg-operator/postgres"
)

// Lease is the content of a cluster's Lease.
type Lease struct {
	// Holder is the identity of the incarnation that may write, empty if nobody may.
	Holder string
	// Term counts the changes of holder.
	Term int32
	// SystemID and Timeline of the database; empty until there is one.
	SystemID string
	Timeline postgres.Timeline
	// Newest is the newest timeline that any holder may have begun. An elected instance notes here, as it takes the
	// Lease, the one that it is going to begin, and begins no other: two instances that each promote a copy of the same
	// timeline would otherwise give the same number to two histories, which PostgreSQL cannot tell apart.
	Newest postgres.Timeline
	// WALLSN is how far the primary had written at its last renewal.
	WALLSN postgres.LSN
	// Members are the instances that take part.
	Members []string
	// Released is where the log ended when the holder stopped cleanly, 0 while it runs.
	Released postgres.LSN
	// ReleasedBy is the incarnation that gave the Lease up after all processes of its database had gone, empty while
	// it is held. An empty holder without it was cleared by somebody else, and the holder may not know yet.
	ReleasedBy string
	// Successor is the instance that has everything up to Released, and takes over first; empty if there is none.
	Successor string
	// Sync is what commits wait for.
	Sync Sync
	// Failover is the last one, nil if there was none.
	Failover *Failover
	// Duration is how long a silent holder keeps the Lease; 0 in a new one.
	Duration time.Duration
	// Problem says which annotation cannot be understood; what it should say is missing here. Empty if all can. Who
	// holds the Lease goes on by what it knows itself (Mended), and nobody is elected by a Lease with a problem.
	Problem string
	// Version is the object's resourceVersion, for compare-and-swap.
	Version string
}

// separator cannot be part of a pod's name.
const separator = "_"

// Identity is how an incarnation of an instance's agent is named as a holder.
func Identity(instance, incarnation string) string { return instance + separator + incarnation }

// Instance is the instance that an identity belongs to.
func Instance(identity string) string {
	instance, _, _ := strings.Cut(identity, separator)
	return instance
}

// HeldBy is the instance that holds the Lease, empty if none does.
func (l Lease) HeldBy() string { return Instance(l.Holder) }

// Former is the instance that holds the Lease, or gave it up last; empty if that is not known.
func (l Lease) Former() string { return cmp.Or(l.HeldBy(), Instance(l.ReleasedBy)) }

// Same tells whether nothing changed on which a verdict, an election or a report depends: all but the progress that
// each renewal notes.
func (l Lease) Same(other Lease) bool {
	return l.Holder == other.Holder && l.Term == other.Term && l.SystemID == other.SystemID &&
		l.Released == other.Released && l.ReleasedBy == other.ReleasedBy && l.Successor == other.Successor &&
		slices.Equal(l.Members, other.Members) && l.Sync.Equal(other.Sync) && l.Failover.Equal(other.Failover) &&
		l.Duration == other.Duration && l.Problem == other.Problem
}

// Taken is the Lease as the incarnation identity takes it, in a new term. What commits wait for stays, because the
// database that is taken over was written under it.
func (l Lease) Taken(identity string) Lease {
	l.Holder = identity
	l.Term++
	l.Released, l.ReleasedBy, l.Successor = 0, "", ""
	return l
}

// Yielded is the Lease as its holder gives it up, once all processes of its database have gone. end is where the log
// ended in good order, 0 if it did not; successor is the instance known to have everything up to there, or empty.
func (l Lease) Yielded(end postgres.LSN, successor string) Lease {
	l.ReleasedBy, l.Holder = l.Holder, ""
	l.Released, l.Successor = end, successor
	return l
}

// Since is the Lease as one has to take it who knows of a term: one that is older was restored from an old copy. It names
// holders, positions and quorums of the past, so that nobody holds it, and what commits wait for is not known.
func (l Lease) Since(known int32) Lease {
	if l.Term < known {
		l.Holder, l.ReleasedBy, l.Successor, l.Released, l.Sync = "", "", "", 0, Sync{}
	}
	return l
}

// Mended is the Lease with what could not be understood as its holder knows it, who alone writes it: known is the
// Lease as the holder last read or wrote it. Another holder's or term's cannot be mended, and stays as it is.
func (l Lease) Mended(known Lease) Lease {
	if l.Problem == "" || l.Holder == "" || l.Holder != known.Holder || l.Term != known.Term {
		return l
	}
	known.Version, known.Duration = l.Version, l.Duration
	return known
}

// Data is what an instance has on its volume.
type Data struct {
	// Present tells whether there is a database.
	Present bool
	// SystemID of it.
	SystemID string
	// Replica tells that it was a copy that followed a primary when last used.
	Replica bool
	// Torn tells that a rewind was begun and not ended: it is nobody's data, and only a clone helps. Meanwhile nothing
	// else may tell that it was a replica's.
	Torn bool
}

// Primary tells whether the data is a primary's, all of it.
func (d Data) Primary() bool { return d.Present && !d.Replica && !d.Torn }

// Facts are what a verdict depends on.
type Facts struct {
	// Self is the asking instance, Incarnation its agent's.
	Self, Incarnation string
	// Name and Namespace of the Lease, for messages.
	Name, Namespace string
	// Lease as last read; Known is false as long as it never could be read.
	Lease Lease
	Known bool
	// HeldTerm is the last term in which this incarnation held the Lease, 0 if it never did.
	HeldTerm int32
	// Replaced: another pod took the place of this incarnation's, or nothing did yet.
	Replaced bool
	// Members and SystemID as the operator knows them.
	Members  []string
	SystemID string
	// Data on the asking instance's volume.
	Data Data
	// Running: its database runs; it was found to fit when it was started. Leading: it runs as the primary.
	Running, Leading bool

	// Failover: another member may take the place of a primary that failed.
	Failover bool
	// Challenged says why the holder may be challenged, empty if it may not.
	Challenged string
	// LedTerm is the last term in which PostgreSQL took writes on this instance's volume, 0 if that is not known.
	LedTerm int32
	// Unclaimed: the Lease has been free for so long that nobody else is about to take it.
	Unclaimed bool
}

// Verdict is what an instance may do.
type Verdict string

const (
	// Hold: it holds the Lease, and may be the primary.
	Hold Verdict = "Hold"
	// Take: it may take the Lease.
	Take Verdict = "Take"
	// Follow: another instance holds it.
	Follow Verdict = "Follow"
	// Wait: nobody holds it yet, or it is not known who does.
	Wait Verdict = "Wait"
	// Yield: a later incarnation has its place; this one may run nothing any more.
	Yield Verdict = "Yield"
	// Elect: it may ask the members for their votes, and take the Lease with them.
	Elect Verdict = "Elect"
	// Refuse: its data does not fit; nothing may be done with it.
	Refuse Verdict = "Refuse"
)

// Decide says what an instance may do, and why.
func Decide(f Facts) (Verdict, string) {
	if f.Replaced {
		return Yield, "this pod was deleted, and another one has its place; this one stopped its database and waits for its end"
	}
	if reason := f.misfit(); reason != "" && !f.Running {
		return Refuse, reason
	}
	switch {
	case !f.Known:
		return f.decideAlone()
	case f.Lease.Holder == Identity(f.Self, f.Incarnation):
		return Hold, "this incarnation holds the Lease"
	case f.Lease.HeldBy() == f.Self && f.HeldTerm > 0:
		// The pod was deleted by force and made again while its node was cut off. Taking the Lease back would go on
		// for ever.
		return Yield, "a later incarnation of this instance took the Lease; this one stopped its database and waits for its end"
	case f.Lease.HeldBy() == f.Self && f.succeeds():
		return Take, "an earlier incarnation of this instance holds the Lease"
	case f.Lease.Holder != "" && len(f.Members) > 0 && !slices.Contains(f.Members, f.Lease.HeldBy()):
		return Wait, f.strange()
	case f.Lease.Holder != "" && f.Challenged != "" && f.candidate():
		return Elect, f.Challenged
	case f.Lease.HeldBy() == f.Self:
		return Wait, "an earlier incarnation of this instance holds the Lease, but its data is not on this volume; " +
			"waits until another instance may take it"
	case f.Lease.Holder != "":
		return Follow, f.Lease.HeldBy() + " holds the Lease"
	default:
		return f.decideFree()
	}
}

// strange is for a holder that is no instance of the cluster: there is nobody to follow, and only a person can have
// written it.
func (f Facts) strange() string {
	return fmt.Sprintf("the Lease %s is held by %q, which is no member of the cluster (%s); nothing was changed. "+
		"Clear the holder, and the instance with the primary's data goes on: "+
		`kubectl -n %s patch lease %[1]s --type merge -p '{"spec":{"holderIdentity":""}}'`,
		f.Name, f.Lease.Holder, strings.Join(f.Members, ", "), f.Namespace)
}

// misfit says why the instance's data is not this cluster's; empty if it is.
func (f Facts) misfit() string {
	expected := f.ExpectedSystemID()
	if id := f.Lease.SystemID; id != "" && f.SystemID != "" && id != f.SystemID {
		return fmt.Sprintf("the Lease names the database %s, the operator's ConfigMap %s; "+
			"one of them belongs to another cluster", id, f.SystemID)
	}
	if f.Data.Present && expected != "" && f.Data.SystemID != expected {
		return fmt.Sprintf("the volume holds the database %s, but this cluster is %s; nothing was changed. "+
			"Move the volume's data away, or delete the volume claim to have the instance cloned", f.Data.SystemID, expected)
	}
	return ""
}

// ExpectedSystemID identifies the database this cluster is known to have, empty if none is known.
func (f Facts) ExpectedSystemID() string {
	if f.Lease.SystemID != "" {
		return f.Lease.SystemID
	}
	return f.SystemID
}

// decideAlone is for an API server that could not be asked since the agent started. Only where no other instance
// exists that could have taken the Lease may the database run without it.
func (f Facts) decideAlone() (Verdict, string) {
	if f.Leading {
		return Hold, "the API server does not answer, and no other instance was there when the database was started"
	}
	if len(f.Members) == 1 && f.Members[0] == f.Self && f.Data.Primary() {
		return Hold, "the API server does not answer, but no other instance exists"
	}
	return Wait, "waits for the API server, to learn which instance is the primary"
}
