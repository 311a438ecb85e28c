package election

import (
	"slices"

	"github.com/acme/pg-operator/instance/lease"
)

// Durability is what the owner of a cluster wants of commits: how many standbys have each on disk before it is
// acknowledged, 0 for none, and whether it rather waits than goes without.
type Durability struct {
	Number   int
	Required bool
}

// SyncFacts are what the holder of the Lease knows of its commits.
type SyncFacts struct {
	Wanted Durability
	// Others are all members but the holder, Streaming those of them that get the log as it is written; Damped are those of
	// these that are likely to leave again.
	Others, Streaming, Damped []string
	// Record is what the Lease says.
	Record lease.Sync
	// Applied is the quorum that PostgreSQL was last given; it has no standbys if commits wait for nobody.
	Applied lease.Quorum
	// Settled: every process of PostgreSQL has worked with Applied for a while, the Lease was renewed since, and so many
	// standbys of Applied as it asks for have all that had been written when that was found out. One that comes back may
	// lack what others acknowledged before.
	Settled bool
	// Doubt: since a write of the Lease last succeeded, one was tried that says something else about commits than
	// Record. It may have arrived, or still may, until a later write succeeds.
	Doubt bool
}

// SyncStep is the next thing to do. At most one of both is set.
type SyncStep struct {
	// Record is what to write into the Lease.
	Record *lease.Sync
	// Apply is the quorum to give to PostgreSQL.
	Apply *lease.Quorum
}

// NextSync says how to get from what is in force to what is wanted. At any time the Lease names every quorum by which a
// commit may be acknowledged, or none, which promises nothing: an instance that has the evidence which the Lease asks
// for has every acknowledged commit. So where safety shrinks the Lease is written before PostgreSQL is told, and where
// it grows after that has settled.
func NextSync(f SyncFacts) SyncStep {
	target := wantedQuorum(f.Wanted, f.Others, f.counted())
	if !f.Applied.Equal(target) {
		switch {
		case f.Doubt:
			return SyncStep{} // The next renewal tells.
		case !f.Record.Synchronous() || slices.ContainsFunc(f.Record.InForce, target.Equal):
			return SyncStep{Apply: &target}
		case len(target.Standbys) == 0:
			return SyncStep{Record: &lease.Sync{}}
		}
		joint := append(slices.Clone(f.Record.InForce), target)
		return SyncStep{Record: &lease.Sync{Required: f.Record.Required, InForce: joint}}
	}
	if len(target.Standbys) == 0 {
		if f.Record.Synchronous() {
			return SyncStep{Record: &lease.Sync{}}
		}
		return SyncStep{}
	}
	record := lease.Sync{Required: f.Wanted.Required, InForce: []lease.Quorum{target}}
	if !f.Settled || f.Record.Equal(record) {
		return SyncStep{}
	}
	return SyncStep{Record: &record}
}

// counted are whom commits may wait for. What is required is not had without those that may leave again, if the others
// are too few.
func (f SyncFacts) counted() []string {
	counted := slices.DeleteFunc(slices.Clone(f.Streaming), func(s string) bool { return slices.Contains(f.Damped, s) })
	if f.Wanted.Required && len(counted) < f.Wanted.Number {
		return f.Streaming
	}
	return counted
}

// wantedQuorum is what commits should wait for. What is required is never less than asked for: while too few standbys
// stream, all count, and commits wait.
func wantedQuorum(wanted Durability, others, streaming []string) lease.Quorum {
	if wanted.Number <= 0 || len(others) == 0 {
		return lease.Quorum{}
	}
	switch {
	case len(streaming) >= wanted.Number:
		return lease.Quorum{Number: wanted.Number, Standbys: streaming}
	case wanted.Required:
		return lease.Quorum{Number: min(wanted.Number, len(others)), Standbys: others}
	case len(streaming) > 0:
		return lease.Quorum{Number: len(streaming), Standbys: streaming}
	}
	return lease.Quorum{}
}

// SyncAtStart is the quorum that PostgreSQL is given before it takes its first write as the primary: the newest that
// the Lease names, and if it names none, what is required.
func SyncAtStart(record lease.Sync, wanted Durability, others []string) lease.Quorum {
	if record.Synchronous() {
		return record.InForce[len(record.InForce)-1]
	}
	return wantedQuorum(wanted, others, nil)
}
