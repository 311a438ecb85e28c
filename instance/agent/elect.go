package agent

import (
	"fmt"
	"slices"

	"github.com/acme/pg-operator/instance/contract"
)

// failover tells whether another member may take the place of a primary that failed.
func (f Facts) failover() bool {
	return f.Config != nil && f.Config.FailoverEnabled && len(f.Config.Members) > 1
}

// astray are verdicts on data that is no base for a new primary: it has what others do not, or is of another database.
var astray = []Verdict{VerdictForeign, VerdictRewind, VerdictAhead}

// challenged says why the instance may challenge the holder of the Lease, empty if it may not.
func (f Facts) challenged() string {
	if !f.Challenge.Due {
		return ""
	}
	return f.Challenge.Reason
}

// elected tells whether this incarnation holds the Lease because it was elected.
func (f Facts) elected() bool { return f.failover() && f.Elected > 0 && f.Elected == f.Lease.Term }

// Outdated tells whether the volume has the data of the primary of an earlier term, which may be made a replica's.
func (f Facts) Outdated() bool { return f.failover() && f.leaseFacts().Outdated() }

// unfit tells whether the holder of the Lease has nothing that a primary could run on.
func (f Facts) unfit() bool {
	if f.Data.Torn || f.Data.Present && f.Data.Replica {
		return true
	}
	return !f.Data.Present && f.ExpectedSystemID() != ""
}

// elect is for an instance that may become the primary if the others agree.
func (f Facts) elect(reason string) Decision {
	d := Decision{Role: f.role(), State: contract.StateWaiting, Message: reason}
	if slices.Contains(astray, f.Diagnosis.Verdict) {
		if holder := f.Lease.HeldBy(); holder != "" && holder != f.Self {
			return f.follow(holder)
		}
		d.Message = f.Diagnosis.Detail
		return d
	}
	if f.Data.Replica || f.Outdated() {
		if d = f.stand(d); d.Do != TaskNone || d.Cancel || !f.Server.Accepting {
			return d
		}
	} else if f.Server.Up {
		return f.begin(TaskFence, d)
	}
	d.Message = orElse(f.Challenge.Progress, d.Message)
	return f.begin(TaskElect, d)
}

// stand has a replica run that follows nobody.
func (f Facts) stand(d Decision) Decision {
	switch {
	case f.Server.Up && (!f.Server.Replica || f.Server.Accepting && !f.Server.Recovering):
		return f.begin(TaskFence, d)
	case !f.Server.Up:
		return f.start(TaskStartReplica, d)
	case f.Server.Hung != "" && f.Repairs.Restarts == 0:
		return f.hung(d) // As a primary it would hang as well.
	case !f.Server.Accepting:
		d.Message = orElse(f.Server.LastError, "PostgreSQL recovers")
	default:
		d.State = contract.StateNotStreaming
	}
	return d
}

// stay is for an instance that promised never to follow the Lease's holder again: that one is about to be replaced, or
// takes the Lease anew.
func (f Facts) stay(d Decision) Decision {
	d.Message = fmt.Sprintf("does not follow %s any more, because it took part in an election in term %d", d.Follow, f.Promised)
	d.Follow = ""
	if !f.Data.Present || f.Data.Torn || !f.Data.Replica {
		d.State = contract.StateWaiting
		d.Cancel = f.Running != TaskNone && f.Running != TaskStop && f.Running != TaskFence
		return d
	}
	d = f.stand(d)
	if d.State == contract.StateNotStreaming && !f.Configured {
		return f.begin(TaskConfigure, d)
	}
	return d
}

// promote makes the replica of an elected instance the primary. Where that fails for long, another one is to try.
func (f Facts) promote(d Decision) Decision {
	d.Message = "becomes the primary"
	switch {
	case f.Failed.Task == TaskPromote && f.Failed.Count >= persistent:
		d.Message = f.Failed.Message
		if f.Server.Up {
			return f.begin(TaskFence, d)
		}
		return f.giveAway(d)
	case !f.Server.Up:
		return f.start(TaskStartReplica, d)
	case !f.Server.Accepting:
		d.Message = orElse(f.Server.LastError, "PostgreSQL recovers")
		return d
	}
	return f.begin(TaskPromote, d)
}

// giveAway is for a holder of the Lease that cannot be the primary.
func (f Facts) giveAway(d Decision) Decision {
	d.Message = orElse(d.Message, "gives the Lease away, because the volume does not hold a primary's data")
	if f.Server.Up {
		return f.begin(TaskFence, d)
	}
	return f.begin(TaskRelease, d)
}
