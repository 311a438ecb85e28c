package agent

import (
	"fmt"
	"slices"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// Decide is the agent's whole policy, in order of urgency.
func Decide(f Facts) Decision {
	if f.Stopping {
		return f.stop()
	}
	if d, abandoned := f.abandoned(); abandoned {
		return d
	}
	if d, blocked := f.blocked(); blocked {
		return d
	}
	verdict, reason := lease.Decide(f.leaseFacts())
	switch verdict {
	case lease.Refuse:
		return f.rest(contract.StateFailed, reason)
	case lease.Yield:
		return f.yield(reason)
	case lease.Take:
		return f.take(reason)
	case lease.Hold:
		return f.lead()
	case lease.Elect:
		return f.elect(reason)
	case lease.Follow:
		return f.follow(f.Lease.HeldBy())
	default:
		return f.wait(reason)
	}
}

func (f Facts) leaseFacts() lease.Facts {
	return lease.Facts{
		Self: f.Self, Incarnation: f.Incarnation, Lease: f.Lease, Known: f.LeaseKnown, HeldTerm: f.HeldTerm, Replaced: f.Replaced,
		Name: naming.Cluster(f.Config.Cluster).Lease(), Namespace: f.Config.Namespace,
		Members: f.Config.Members, SystemID: f.Config.SystemID, Data: f.Data.Data,
		Running: f.Server.Up, Leading: f.Server.Up && !f.Server.Replica,
		Failover: f.failover(), Challenged: f.challenged(), LedTerm: f.LedTerm, Unclaimed: f.Unclaimed,
	}
}

// ExpectedSystemID identifies the database this cluster is known to have, empty if none is known.
func (f Facts) ExpectedSystemID() string { return f.leaseFacts().ExpectedSystemID() }

// stop ends PostgreSQL, then the agent.
func (f Facts) stop() Decision {
	d := Decision{State: contract.StateStopping, Message: "the pod is being stopped", Role: f.role(), Leave: f.leaves()}
	if f.Running != TaskNone && !slices.Contains(ending, f.Running) {
		d.Cancel = true
		return d
	}
	if f.expired() {
		return f.begin(TaskFence, d)
	}
	if f.Server.Up {
		return f.begin(TaskStop, d)
	}
	return f.begin(TaskExit, d)
}

// expired tells whether a primary runs that may not take writes any more.
func (f Facts) expired() bool { return f.Server.Up && !f.Server.Replica && !f.Licensed }

// unrenewed is why nothing takes writes.
const unrenewed = "the Lease was not renewed in time, so that another instance may have become the primary; waits for the API server"

// blocked is for what keeps an instance from doing anything. A database that runs already goes on running.
func (f Facts) blocked() (Decision, bool) {
	if f.Server.Up {
		return Decision{}, false
	}
	switch {
	case f.Config == nil:
		message := f.ConfigProblem
		if message == "" {
			message = "waits for the operator's ConfigMap"
		}
		return f.rest(contract.StateWaiting, message), true
	case f.ProgramsProblem != "":
		return f.rest(contract.StateFailed, f.ProgramsProblem), true
	case !f.Data.Known:
		return f.rest(contract.StateStarting, "looks at its volume"), true
	case f.Programs.Major != f.Config.Version && f.Programs.Major != "":
		return f.rest(contract.StateFailed, fmt.Sprintf("the image has PostgreSQL %s, but spec.version is %q; "+
			"use an image with PostgreSQL %[2]s", f.Programs.Full, f.Config.Version)), true
	case f.Data.Problem != "":
		return f.rest(contract.StateFailed, f.Data.Problem), true
	case f.Data.Present && f.Data.Major != f.Programs.Major:
		return f.rest(contract.StateFailed, fmt.Sprintf("the volume holds data of PostgreSQL %s, "+
			"which the image's PostgreSQL %s cannot read; use an image with PostgreSQL %[1]s", f.Data.Major, f.Programs.Full)), true
	}
	return Decision{}, false
}

// take takes the Lease. What runs meanwhile came from an agent that ended, or from following, and does not go on.
func (f Facts) take(reason string) Decision {
	d := Decision{State: contract.StateStarting, Message: reason}
	if f.expired() {
		return f.wait(unrenewed)
	}
	if f.Server.Up && f.Server.Replica {
		return f.rest(contract.StateWaiting, "holds the Lease but runs as a replica; it is not promoted without a vote")
	}
	if f.Server.Up && f.Server.Accepting {
		// It has been the primary all along, and goes on.
		d = Decision{Role: contract.RolePrimary, State: contract.StateRunning, Serve: true, Label: true}
	}
	return f.begin(TaskTake, d)
}

// lead is for the holder of the Lease.
func (f Facts) lead() Decision {
	d := Decision{Role: contract.RolePrimary, State: contract.StateStarting}
	switch {
	case !f.Licensed:
		return f.wait(unrenewed)
	case f.Running != TaskNone && !slices.Contains(leading, f.Running):
		d.Cancel = true
		return d
	case f.elected() && f.Data.Replica:
		return f.promote(d)
	case f.Server.Up && (f.Server.Replica || f.Server.Accepting && f.Server.Recovering):
		d.Message = "holds the Lease, but PostgreSQL runs as a replica"
		return f.begin(TaskFence, d)
	case f.unfit() && f.failover():
		return f.giveAway(d)
	case !f.Data.Present:
		return f.bootstrap(d)
	case f.Data.Torn:
		return f.failed(d, "the volume's data was being rewound and is not complete, and this instance is the primary; "+
			"restore a backup, or delete the cluster's Lease after making sure which instance has the newest data")
	case f.Data.Replica && !f.Server.Up:
		return f.failed(d, "this instance holds the Lease, but its volume holds a replica's copy, "+
			"which is not promoted without a vote; set spec.failover.enabled to true, and the instances elect the one with most")
	case !f.Server.Up:
		return f.start(TaskStartPrimary, d)
	case !f.Server.Accepting:
		d.Message = orElse(f.Server.LastError, "PostgreSQL recovers")
		return d
	}
	return f.serve(d)
}

// leading are the tasks that a primary may be at.
var leading = []Task{
	TaskTake, TaskBootstrap, TaskStartPrimary, TaskProvision, TaskConfigure, TaskRestart, TaskStop, TaskFence,
	TaskElect, TaskPromote, TaskRelease, TaskHandOver, TaskStartReplica,
}

func (f Facts) bootstrap(d Decision) Decision {
	if expected := f.ExpectedSystemID(); expected != "" {
		return f.failed(d, fmt.Sprintf("the database %s was on this instance's volume, which is empty now, and no other "+
			"instance may replace it yet; restore the volume or a backup. No new database is made in its place", expected))
	}
	if f.Server.Up {
		return f.begin(TaskFence, d)
	}
	d.State = contract.StateBootstrapping
	d.Message = "makes the database"
	return f.begin(TaskBootstrap, d)
}

// serve is for a primary that accepts connections.
func (f Facts) serve(d Decision) Decision {
	if !f.Provisioned && f.Failed.Task != TaskProvision {
		d.Message = "makes roles, database and replication slots"
		return f.begin(TaskProvision, d)
	}
	d.State, d.Message = contract.StateRunning, ""
	d.Serve, d.Label = true, true
	if !f.Provisioned || f.ProvisionDue {
		return f.begin(TaskProvision, d)
	}
	return f.maintain(d)
}

// maintain keeps a running server as Config wants it.
func (f Facts) maintain(d Decision) Decision {
	switch {
	case !f.Configured:
		return f.begin(TaskConfigure, d)
	case f.RestartOrder != "":
		return f.begin(TaskRestart, d)
	case f.SwitchoverOrder != "":
		return f.begin(TaskHandOver, d)
	}
	return d
}

// wait is for a Lease that nobody holds, or that is not known.
func (f Facts) wait(reason string) Decision {
	d := f.idle(reason)
	if d.Message == reason && f.awaitsLease() {
		d.Waiting = contract.WaitingForLease
	}
	return d
}

// awaitsLease tells whether it is the Lease alone that keeps the instance from taking part.
func (f Facts) awaitsLease() bool {
	switch {
	case !f.Data.Present || f.Data.Torn:
		return false
	case !f.LeaseKnown:
		return f.Unanswered
	case f.Lease.Holder == "" && f.LedTerm > 0 && f.LedTerm == f.Lease.Term:
		return false // Another one is about to take what this one gave away.
	}
	return f.failover()
}

// idle has nothing run that takes writes.
func (f Facts) idle(reason string) Decision {
	if f.Running != TaskNone && !slices.Contains(ending, f.Running) {
		return Decision{State: contract.StateWaiting, Message: reason, Cancel: true}
	}
	if f.Server.Up && !f.Server.Replica {
		return f.begin(TaskFence, Decision{State: contract.StateWaiting, Message: reason})
	}
	if f.Data.Replica && f.failover() && (f.Lease.Holder == "" || f.Lease.HeldBy() == f.Self) && f.LeaseKnown {
		return f.stand(Decision{State: contract.StateWaiting, Message: reason, Role: f.role()})
	}
	return f.rest(contract.StateWaiting, reason)
}

// yield is for an incarnation that another one of the same instance has replaced: also as a replica it would use what
// is the other's.
func (f Facts) yield(reason string) Decision {
	d := Decision{State: contract.StateWaiting, Message: reason}
	if f.Server.Up {
		return f.begin(TaskFence, d)
	}
	if f.failover() && f.Lease.Holder == lease.Identity(f.Self, f.Incarnation) {
		return f.begin(TaskRelease, d)
	}
	d.Cancel = f.Running != TaskNone && !slices.Contains(ending, f.Running)
	return d
}

// start starts PostgreSQL, not faster than it fails.
func (f Facts) start(task Task, d Decision) Decision {
	d.Message = orElse(f.Server.LastError, "starts PostgreSQL")
	if f.Server.Broken {
		d.State = contract.StateFailed
	}
	return f.begin(task, d)
}

// persistent is how often a task fails in a row before somebody has to look at it.
const persistent = 3

// begin begins a task, unless one runs or it failed so recently that it is too early to try again.
func (f Facts) begin(task Task, d Decision) Decision {
	if f.Failed.Task == task {
		d.Message = f.Failed.Message
		if f.Failed.Count >= persistent && d.State != contract.StateRunning && d.State != contract.StateStopping {
			d.State = contract.StateFailed
		}
	}
	if f.Running == task || f.Failed.Task == task && f.Failed.Waiting && task != TaskFence {
		return d
	}
	if f.Running != TaskNone {
		// Fencing waits for nobody, a new role ends what the old one began, and a question may stay unanswered.
		d.Cancel = slices.Contains(urgent, task) || f.Running == TaskDiagnose
		return d
	}
	d.Do = task
	return d
}

// urgent are the tasks that end others.
var urgent = []Task{TaskFence, TaskTake, TaskElect, TaskPromote, TaskRelease}

func (f Facts) rest(state contract.State, message string) Decision {
	return Decision{State: state, Message: message, Role: f.role()}
}

func (f Facts) failed(d Decision, message string) Decision {
	d.State, d.Message = contract.StateFailed, message
	return d
}

// role is the one an instance plays by what it runs.
func (f Facts) role() contract.Role {
	switch {
	case !f.Server.Up:
		return ""
	case f.Server.Replica:
		return contract.RoleReplica
	default:
		return contract.RolePrimary
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// KnownTimeline is the newest timeline that is known of the instance.
func (f Facts) KnownTimeline() postgres.Timeline { return max(f.Data.Timeline, f.Server.Timeline) }
