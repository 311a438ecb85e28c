package agent

import (
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
)

// ending are the tasks that end PostgreSQL. They are not cancelled: what is half ended neither serves nor is given up.
var ending = []Task{TaskStop, TaskFence, TaskRelease, TaskHandOver, TaskRevive}

// abandoned is for the holder of the Lease while its PostgreSQL does not serve any more and a replica could.
func (f Facts) abandoned() (d Decision, abandoned bool) {
	if f.Abandon == "" || !f.holds() {
		return Decision{}, false
	}
	d = Decision{Role: contract.RolePrimary, State: contract.StateStarting, Message: "gives the Lease away: " + f.Abandon}
	message := d.Message
	d = f.begin(TaskRelease, d)
	d.Message = message
	return d, true
}

// leaves tells whether a stopped instance has its clients refused, rather than led to whoever takes over.
func (f Facts) leaves() bool {
	return !f.Server.Up && f.Running == TaskNone && (f.holds() || f.Lease.Holder == "" && f.Lease.Successor == "")
}

// holds tells whether this incarnation holds the Lease.
func (f Facts) holds() bool { return f.Lease.Holder == lease.Identity(f.Self, f.Incarnation) }
