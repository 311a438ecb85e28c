package lease

import (
	"fmt"
	"slices"
)

// candidate tells whether the instance has what an election may be about: all of a database, as a replica has it.
func (f Facts) candidate() bool {
	return f.Failover && f.Data.Present && !f.Data.Torn && (f.Data.Replica || f.Outdated()) && slices.Contains(f.Members, f.Self)
}

// Outdated tells whether a primary's data is that of an earlier term: another instance led since, or was elected to.
// Like a replica's it is only as good as what it has of the log.
func (f Facts) Outdated() bool { return f.Data.Primary() && f.LedTerm > 0 && f.LedTerm < f.Lease.Term }

// succeeds tells whether an instance may go on where an earlier incarnation of it held the Lease. With failover that
// takes the primary's data: the earlier one may still run on another volume, so that an empty volume proves nothing.
func (f Facts) succeeds() bool {
	return !f.Failover || f.Data.Primary() || !f.Data.Present && f.ExpectedSystemID() == ""
}

// decideFree is for a Lease that nobody holds: a new one, one made anew, one whose holder somebody cleared, or one that
// its holder gave away. A database that still runs as the primary goes on, and a new cluster is begun by its first
// member. An old incarnation of an instance, which still runs after its pod was replaced, may have a primary's data,
// too: HeldTerm keeps it from that, or, if the Lease was made anew or it never held it, Replaced, which is found out
// before the Lease is taken.
func (f Facts) decideFree() (Verdict, string) {
	expected := f.ExpectedSystemID()
	switch {
	case f.HeldTerm > 0 && f.Lease.Term > f.HeldTerm && (f.Leading || !f.candidate()):
		return Wait, "nobody holds the Lease, but another incarnation did since this one"
	case f.Leading:
		return Take, "nobody else took the Lease from this primary"
	case f.Data.Torn:
		return Wait, "waits for a primary to clone from: the volume's data was being rewound and is not complete"
	case f.Data.Present && f.Failover && slices.Contains(f.Members, f.Self):
		return f.decideElection()
	case f.Outdated():
		return Wait, f.outdated()
	case f.Data.Primary():
		// Each copy is marked as a replica's before PostgreSQL first starts on it, and a rewind that takes the mark away
		// tears the data: without failover only the instance that led last has a primary's data.
		return Take, "adopts the database on its volume"
	case f.Data.Present && len(f.Members) == 1:
		return Wait, "the volume holds a replica's copy, which may lack what the primary had; set spec.replicas to the number of " +
			"instances that the cluster had, for the one with the primary's data to take part"
	case f.Data.Present:
		return Wait, "waits for a primary: the volume holds a replica's copy, which is not promoted without a vote"
	case expected != "":
		return Wait, fmt.Sprintf("waits for a primary to clone from: its volume is empty, "+
			"and this cluster already has the database %s", expected)
	case len(f.Members) > 0 && f.Members[0] == f.Self:
		return Take, "makes the cluster's database"
	case slices.Contains(f.Members, f.Self):
		return Wait, "waits for " + f.Members[0] + " to make the database"
	default:
		return Wait, "is not a member of the cluster"
	}
}

// decideElection is for a member with data while nobody holds the Lease. After a failover more than one volume may have
// a primary's data: who led in the Lease's last term has everything, and others need the evidence of an election.
func (f Facts) decideElection() (Verdict, string) {
	switch {
	case f.candidate() && f.Challenged != "":
		return Elect, f.Challenged
	case f.Data.Replica:
		return Wait, "nobody holds the Lease, but its last holder may go on for a while"
	case f.LedTerm > 0 && f.LedTerm == f.Lease.Term && f.Unclaimed:
		return Take, "nobody took the Lease that this instance gave away, and its volume has all that was written"
	case f.LedTerm > 0 && f.LedTerm == f.Lease.Term:
		return Wait, "waits for another instance to take the Lease that this one gave away"
	case f.Outdated():
		return Wait, f.outdated()
	}
	if f.Challenged != "" {
		return Elect, "nobody holds the Lease, and it does not tell who has the newest data"
	}
	return Wait, "nobody holds the Lease, which does not tell who has the newest data"
}

func (f Facts) outdated() string {
	return fmt.Sprintf("waits for a primary: the volume's data is that of the primary of term %d, "+
		"and another one has written since, in term %d", f.LedTerm, f.Lease.Term)
}
