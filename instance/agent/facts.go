// Package agent is the agent's mind: Decide turns what is known of an instance
// into the next thing to do and what to say about it. It is pure: no clock, no
// input or output; what depends on time arrives as a fact.
package agent

import (
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// Task is something the agent does that takes a while. Only one runs at a time.
type Task string

const (
	// TaskNone is nothing.
	TaskNone Task = ""
	// TaskTake takes the Lease.
	TaskTake Task = "Take"
	// TaskBootstrap runs initdb.
	TaskBootstrap Task = "Bootstrap"
	// TaskClone copies the primary's data, in place of what the instance has.
	TaskClone Task = "Clone"
	// TaskDiagnose asks the primary whether the instance's data can follow it.
	TaskDiagnose Task = "Diagnose"
	// TaskRewind takes back what the primary does not have.
	TaskRewind Task = "Rewind"
	// TaskStartPrimary starts PostgreSQL to take writes.
	TaskStartPrimary Task = "StartPrimary"
	// TaskStartReplica starts PostgreSQL to follow.
	TaskStartReplica Task = "StartReplica"
	// TaskProvision makes the roles, the database and the slots that a primary needs.
	TaskProvision Task = "Provision"
	// TaskConfigure writes changed settings and reloads them.
	TaskConfigure Task = "Configure"
	// TaskStop stops PostgreSQL cleanly.
	TaskStop Task = "Stop"
	// TaskRestart stops PostgreSQL for an order; it is started again because it does not run.
	TaskRestart Task = "Restart"
	// TaskRevive ends a replica's PostgreSQL that hangs; it is started again because it does not run.
	TaskRevive Task = "Revive"
	// TaskFence stops PostgreSQL at once, without regard for its clients.
	TaskFence Task = "Fence"
	// TaskElect asks the members for their votes, and takes the Lease with them.
	TaskElect Task = "Elect"
	// TaskPromote makes the running replica the primary that it was elected to be.
	TaskPromote Task = "Promote"
	// TaskRelease gives the Lease away, for another instance to take it.
	TaskRelease Task = "Release"
	// TaskHandOver stops PostgreSQL cleanly, for the instance that an order names to take over.
	TaskHandOver Task = "HandOver"
	// TaskExit ends the agent.
	TaskExit Task = "Exit"
)

// Facts are all that is known of an instance.
type Facts struct {
	// Self is the instance, Incarnation its agent's.
	Self, Incarnation string
	// Stopping: the pod is being stopped.
	Stopping bool

	// Config the operator gave; ConfigProblem says why there is none.
	Config        *contract.Config
	ConfigProblem string
	// Programs of PostgreSQL in the image; ProgramsProblem says why they cannot be used.
	Programs        postgres.ServerVersion
	ProgramsProblem string

	// Data on the volume.
	Data Data
	// Lease as last read, if LeaseKnown.
	Lease      lease.Lease
	LeaseKnown bool
	// LeaseMissing: it did not exist when it was last asked for.
	LeaseMissing bool
	// Unanswered: the API server did not answer when it was last asked for the Lease.
	Unanswered bool
	// HeldTerm is the last term in which this incarnation held the Lease, 0 if it never did.
	HeldTerm int32
	// Challenge of the Lease's holder.
	Challenge Challenge
	// Elected is the last term that this incarnation won in an election, 0 if it won none.
	Elected int32
	// Promised is the last term whose primary this instance promised never to follow again.
	Promised int32
	// LedTerm is the last term in which PostgreSQL took writes on the instance's volume, 0 if that is not known.
	LedTerm int32
	// Unclaimed: the Lease has been free for so long that nobody is about to take it.
	Unclaimed bool
	// Licensed: its database may take writes, because the Lease was renewed lately or nobody else can hold it.
	Licensed bool
	// Replaced: another pod took the place of the agent's, or nothing did yet. It is found out by who wants to take the Lease.
	Replaced bool
	// Primary is where the -rw EndpointSlice leads.
	Primary Endpoint
	// Server is the PostgreSQL that runs, or does not.
	Server Server

	// Running is the task that runs.
	Running Task
	// Failed is the last task that failed since one succeeded.
	Failed Failure
	// Diagnosis of data that does not follow; it is forgotten when data or primary change.
	Diagnosis Diagnosis
	// CloneAfter is the instance that is being cloned, and that this one lets have its turn; empty if there is none.
	CloneAfter string
	// Repairs of the data since it last streamed.
	Repairs Repairs

	// Provisioned: the roles and the database exist. ProvisionDue: passwords, roles or slots have to be looked at again.
	Provisioned, ProvisionDue bool
	// Configured: the settings of Config and of the wanted upstream are in force, as far as PostgreSQL takes them.
	Configured bool
	// RestartOrder is an order to restart that was not carried out yet, empty if there is none.
	RestartOrder string
	// SwitchoverOrder is an order to hand over that can be carried out now, empty if there is none.
	SwitchoverOrder string
	// Abandon says why a primary is given up for the replica that could take over when it was last looked at; empty if
	// there is none, or no reason.
	Abandon string
}

// Challenge tells whether the holder of the Lease may be challenged.
type Challenge struct {
	// Due: it may. Reason says why.
	Due    bool
	Reason string
	// Free: the holder may not write any more, as far as its time goes.
	Free bool
	// Silent: nothing was heard of the holder for long, or ever since it took the Lease.
	Silent bool
	// Progress says what an election that goes on waits for.
	Progress string
}

// Data is what the volume holds.
type Data struct {
	lease.Data
	// Known: the volume was looked at. Problem says why its content cannot be used.
	Known   bool
	Problem string
	// Major version of the data.
	Major string
	// Timeline of its last checkpoint.
	Timeline postgres.Timeline
}

// Endpoint is where an instance is reached.
type Endpoint struct {
	// Instance that is there, empty if nobody.
	Instance string
	// Address is its IP address, Port that of PostgreSQL.
	Address string
	Port    int32
}

// Server is what is known of the running PostgreSQL.
type Server struct {
	// Up: there is a postmaster.
	Up bool
	// Replica: it was started to follow.
	Replica bool
	// Accepting: it takes connections. Recovering: it only takes reads.
	Accepting, Recovering bool
	// Streaming: a replica receives from its primary.
	Streaming bool
	// Silent: a replica has not been streaming for so long that it is worth asking why.
	Silent bool
	// Broken: it could not be started several times in a row, with all settings that are known to be good.
	Broken bool
	// Hung says what of a replica does not go on any more, and would not by itself; empty if nothing does.
	Hung string
	// Late says why a replica serves data that is too old; empty if it does not.
	Late string
	// LastError is what PostgreSQL said when it ended, or when it could not follow.
	LastError string
	// Timeline it is on.
	Timeline postgres.Timeline
}

// Failure is how a task ended.
type Failure struct {
	Task    Task
	Message string
	// Count is how often it failed in a row.
	Count int
	// Waiting: it is too early to try again.
	Waiting bool
}

// Verdict of a diagnosis.
type Verdict string

const (
	// VerdictNone: nobody asked yet.
	VerdictNone Verdict = ""
	// VerdictStream: the data can follow.
	VerdictStream Verdict = "Stream"
	// VerdictRewind: the data has what the primary does not, and the primary's log goes back far enough.
	VerdictRewind Verdict = "Rewind"
	// VerdictClone: the data cannot follow any more.
	VerdictClone Verdict = "Clone"
	// VerdictAhead: the data has what the primary has lost, and is the only one that does.
	VerdictAhead Verdict = "Ahead"
	// VerdictForeign: the primary is another database.
	VerdictForeign Verdict = "Foreign"
)

// Diagnosis is what was found out about data that does not follow.
type Diagnosis struct {
	Verdict Verdict
	Detail  string
}

// Repairs are what was done to a replica and its data, in vain as long as it does not stream and keep up.
type Repairs struct {
	// Restarts of a PostgreSQL that hung.
	Restarts int
	// Rewinds and Clones that came to their end, or failed after a while.
	Rewinds, Clones int
	// Waiting: it is too early for another clone, which is a load on the primary.
	Waiting bool
}

// Decision is what to do and to say.
type Decision struct {
	// Do is the task to begin; TaskNone to go on as it is.
	Do Task
	// Cancel: the running task is no longer wanted.
	Cancel bool
	// Role, State and Message to report.
	Role    contract.Role
	State   contract.State
	Message string
	// Serve: the -rw EndpointSlice leads here. Label: the pod has the label of its role.
	Serve, Label bool
	// Leave: who served has the -rw Service refuse connections.
	Leave bool
	// Follow is the instance to follow, empty for a primary.
	Follow string
	// Waiting is the word of contract.Report.Waiting for what keeps the instance from serving as the primary, if that is
	// no election.
	Waiting string
}
