package agent

import (
	"fmt"
	"slices"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/postgres"
)

// following are the tasks that a replica may be at.
var following = []Task{
	TaskClone, TaskDiagnose, TaskRewind, TaskStartReplica, TaskConfigure, TaskRestart, TaskStop, TaskFence, TaskRevive,
}

// follow is for an instance while another one holds the Lease.
func (f Facts) follow(primary string) Decision {
	d := Decision{Role: contract.RoleReplica, State: contract.StateStarting, Follow: primary}
	switch {
	case f.Server.Up && (!f.Server.Replica || f.Server.Accepting && !f.Server.Recovering):
		d.Message = fmt.Sprintf("stops taking writes, because %s holds the Lease", primary)
		return f.begin(TaskFence, d)
	case f.Running != TaskNone && !slices.Contains(following, f.Running):
		d.Cancel = true
		return d
	case f.Promised >= f.Lease.Term && f.failover():
		return f.stay(d)
	case !f.Data.Present || f.Data.Torn:
		return f.clone(d, "the volume has no complete data")
	case f.Diagnosis.Verdict == VerdictForeign:
		return f.failed(d, f.Diagnosis.Detail)
	case f.Diagnosis.Verdict == VerdictAhead:
		return f.ahead(d)
	case f.Diagnosis.Verdict == VerdictClone:
		return f.clone(d, f.Diagnosis.Detail)
	case f.Diagnosis.Verdict == VerdictRewind:
		return f.rewind(d)
	case !f.Server.Up:
		return f.startReplica(d)
	case f.Server.Hung != "":
		return f.hung(d)
	case !f.Server.Accepting:
		d.Message = orElse(f.Server.LastError, "PostgreSQL recovers")
		return f.diagnose(d)
	case !f.Server.Streaming:
		return f.notStreaming(d)
	case f.Server.Late != "":
		d.State, d.Message = contract.StateLagging, f.Server.Late
		return f.maintain(d)
	}
	d.State, d.Label = contract.StateRunning, true
	return f.maintain(d)
}

// reachable tells whether the Services lead to the primary that is to be followed.
func (f Facts) reachable(primary string) bool {
	return f.Primary.Instance == primary && f.Primary.Address != ""
}

func (f Facts) clone(d Decision, why string) Decision {
	d.State = contract.StateCloning
	d.Message = fmt.Sprintf("clones from %s: %s", d.Follow, why)
	switch {
	case !f.reachable(d.Follow):
		if f.Running == TaskClone {
			return d
		}
		d.State = contract.StateWaiting
		d.Message = fmt.Sprintf("waits for %s, to clone from it: %s", d.Follow, why)
		return d
	case f.Running == TaskClone && f.CloneAfter != "":
		d.State = contract.StateWaiting
		d.Message = fmt.Sprintf("waits until %s has been cloned: %s", f.CloneAfter, why)
		return d
	case f.Repairs.Waiting && f.Running != TaskClone:
		return f.cloneLater(d, why)
	case f.Server.Up:
		return f.halt(d)
	}
	return f.begin(TaskClone, d)
}

// cloneLater is for an instance that was cloned already, and does not stream since.
func (f Facts) cloneLater(d Decision, why string) Decision {
	d.State = contract.StateWaiting
	if f.Repairs.Clones >= persistent {
		d.State = contract.StateFailed
	}
	if f.Failed.Task == TaskClone {
		why = f.Failed.Message
	}
	d.Message = fmt.Sprintf("does not stream from %s though it was cloned (attempts: %d); waits before the next clone: %s",
		d.Follow, f.Repairs.Clones, why)
	return d
}

// ahead keeps data that only this instance has, for somebody to decide. PostgreSQL stops, because it would follow
// again, past its own log, as soon as the primary has written as much.
func (f Facts) ahead(d Decision) Decision {
	claim := "volume claim"
	if ordinal, ok := naming.Cluster(f.Config.Cluster).Ordinal(f.Self); ok {
		claim += " " + naming.Cluster(f.Config.Cluster).PVC(ordinal)
	}
	d = f.failed(d, fmt.Sprintf("%s. Either stop %s and recover the data from here, or, if it may be lost, "+
		"delete the %s and the pod to have the instance cloned", f.Diagnosis.Detail, d.Follow, claim))
	if f.Server.Up {
		return f.halt(d)
	}
	return d
}

// rewind takes back what the primary does not have; where that fails, the instance is cloned.
func (f Facts) rewind(d Decision) Decision {
	if f.Failed.Task == TaskRewind {
		return f.clone(d, f.Failed.Message)
	}
	if f.Repairs.Rewinds > 0 {
		// pg_rewind goes by the control file, which does not know yet of a timeline that was begun and fenced at once.
		return f.clone(d, f.Diagnosis.Detail+"; a rewind did not change that")
	}
	d.Message = f.Diagnosis.Detail
	switch {
	case f.Server.Up:
		return f.halt(d)
	case !f.reachable(d.Follow):
		d.State = contract.StateWaiting
		return d
	}
	return f.begin(TaskRewind, d)
}

func (f Facts) startReplica(d Decision) Decision {
	if f.Data.Primary() && !f.reachable(d.Follow) {
		d.State = contract.StateWaiting
		d.Message = fmt.Sprintf("keeps its data as a primary's, and does not start, until %s, which holds the Lease, "+
			"answers as the primary", d.Follow)
		return d
	}
	if f.Data.Primary() && f.Diagnosis.Verdict == VerdictNone {
		// It went on after its successor's history left it, or did not: better to know before PostgreSQL starts in vain.
		d = f.begin(TaskDiagnose, d)
		d.Message = orElse(d.Message, fmt.Sprintf("asks %s whether the volume's data can follow it", d.Follow))
		return d
	}
	if f.Server.Broken && f.reachable(d.Follow) {
		d.Message = f.Server.LastError
		if f.Diagnosis.Verdict == VerdictNone {
			return f.begin(TaskDiagnose, d)
		}
		why := "PostgreSQL cannot start on the volume's copy: " + f.Server.LastError
		if !f.Repairs.Waiting {
			return f.clone(d, why)
		}
		// To start costs the primary nothing.
		later := f.cloneLater(d, why)
		d = f.start(TaskStartReplica, d)
		d.State, d.Message = later.State, later.Message
		return d
	}
	return f.start(TaskStartReplica, d)
}

// notStreaming is for a replica that serves old data: it tells so, follows a primary that moved, and asks why.
func (f Facts) notStreaming(d Decision) Decision {
	d.State = contract.StateNotStreaming
	d.Message = fmt.Sprintf("does not stream from %s yet", d.Follow)
	switch {
	case !f.reachable(d.Follow):
		d.Message = fmt.Sprintf("waits for %s, which does not serve", d.Follow)
	case f.Diagnosis.Detail != "":
		d.Message = f.Diagnosis.Detail
	case f.Server.LastError != "":
		d.Message = f.Server.LastError
	}
	if !f.Configured {
		d = f.begin(TaskConfigure, d)
	} else {
		d = f.diagnose(d)
	}
	if f.Challenge.Silent && !f.Challenge.Due && f.failover() && f.Diagnosis.Detail == "" {
		d.Waiting = contract.WaitingForLease
		d.Message = fmt.Sprintf("nothing is heard of %s, and its Lease has not ended", d.Follow)
		if f.Server.LastError != "" {
			d.Message += ": " + f.Server.LastError
		}
	}
	return d
}

func (f Facts) diagnose(d Decision) Decision {
	if !f.Server.Silent || !f.reachable(d.Follow) || f.Diagnosis.Verdict != VerdictNone {
		return d
	}
	state, message := d.State, d.Message
	d = f.begin(TaskDiagnose, d)
	d.State = state
	d.Message = message
	if f.Failed.Task == TaskDiagnose {
		d.Message = f.Failed.Message
	}
	return d
}

// Position is where one end of a replication stands.
type Position struct {
	SystemID string
	Timeline postgres.Timeline
	// At is how far the log goes: a primary's flushed, a replica's received and replayed one.
	At postgres.LSN
	// Open: the log may go on behind that, because it was a primary's that was not stopped cleanly.
	Open bool
}

// Source is what a primary can still offer.
type Source struct {
	Position
	// History of its timeline.
	History []postgres.Fork
	// HasLog: the log that the replica needs next is still there, or not yet written.
	HasLog bool
	// SlotLost: the replica's slot was given up because it fell too far behind.
	SlotLost bool
}

// Diagnose tells whether data at own can follow a primary.
func Diagnose(own Position, primary Source) Diagnosis {
	if own.SystemID != primary.SystemID {
		return Diagnosis{VerdictForeign, fmt.Sprintf("the volume holds the database %s, the primary is %s; nothing was changed",
			own.SystemID, primary.SystemID)}
	}
	fork, related := forkPoint(own.Timeline, primary)
	switch {
	case !related:
		return Diagnosis{VerdictRewind, fmt.Sprintf("timeline %d of the volume is not part of the history of the primary's timeline %d",
			own.Timeline, primary.Timeline)}
	case own.Timeline != primary.Timeline && own.At > fork:
		return Diagnosis{VerdictRewind, fmt.Sprintf("the volume's log goes on to %s on timeline %d, which the primary left at %s",
			own.At, own.Timeline, fork)}
	case own.Timeline != primary.Timeline && own.Open:
		return Diagnosis{VerdictRewind, fmt.Sprintf("the volume's log was not ended in good order on timeline %d, "+
			"which the primary left at %s, and may go on behind that", own.Timeline, fork)}
	case own.Timeline == primary.Timeline && own.At > primary.At:
		// A replica gets nothing that its primary has not on disk: the primary's volume went back.
		return Diagnosis{VerdictAhead, fmt.Sprintf("the volume has more log than the primary, to %s against %s on timeline %d: "+
			"the primary has lost data that this instance has; nothing was changed", own.At, primary.At, own.Timeline)}
	case primary.SlotLost:
		return Diagnosis{VerdictClone, "the instance fell so far behind that the primary gave up its replication slot"}
	case !primary.HasLog:
		return Diagnosis{VerdictClone, fmt.Sprintf("the primary no longer has the log from %s on", own.At)}
	}
	return Diagnosis{Verdict: VerdictStream}
}

// forkPoint is where the primary's history left timeline t; everything so far if it is on it.
func forkPoint(t postgres.Timeline, primary Source) (at postgres.LSN, related bool) {
	if t == primary.Timeline {
		return primary.At, true
	}
	for _, fork := range primary.History {
		if fork.Parent == t {
			return fork.At, true
		}
	}
	return 0, false
}
