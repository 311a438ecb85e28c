package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
)

// A task that failed is tried again after a while that doubles up to a limit.
const (
	backOff    = 500 * time.Millisecond
	backOffMax = 30 * time.Second
)

// begin starts a task beside the main loop. The caller holds mu.
func (r *Runner) begin(ctx context.Context, d agent.Decision) {
	ctx, cancel := context.WithCancel(ctx)
	r.facts.Running, r.cancelTask = d.Do, cancel
	decided := r.facts.Lease
	go func() {
		err := r.carryOut(ctx, d.Do, decided)
		cancelled := ctx.Err() != nil
		cancel()
		r.mu.Lock()
		r.facts.Running, r.cancelTask = agent.TaskNone, nil
		switch {
		case err == nil:
			if r.facts.Failed.Task == d.Do && !startsServer(d.Do) {
				r.facts.Failed = agent.Failure{}
			}
		case !cancelled:
			r.log.Error(err, "Task failed", "task", d.Do)
			r.fail(d.Do, err.Error())
		}
		r.mu.Unlock()
		r.poke()
	}()
}

// startsServer tells of tasks whose success shows only when the server accepts connections.
func startsServer(task agent.Task) bool {
	return task == agent.TaskStartPrimary || task == agent.TaskStartReplica
}

// fail notes a failure, and lets the task wait before it is tried again. The caller holds mu.
func (r *Runner) fail(task agent.Task, message string) {
	failure := agent.Failure{Task: task, Message: message, Count: 1, Waiting: true}
	if r.facts.Failed.Task == task {
		failure.Count = r.facts.Failed.Count + 1
	}
	r.facts.Failed = failure
	wait := backOffMax
	if failure.Count < 7 {
		wait = min(backOff<<(failure.Count-1), backOffMax)
	}
	time.AfterFunc(wait, func() {
		r.update(func(f *agent.Facts) {
			if f.Failed == failure {
				f.Failed.Waiting = false
			}
		})
	})
}

// carryOut does a task that was decided on while the Lease was as given.
func (r *Runner) carryOut(ctx context.Context, task agent.Task, decided lease.Lease) error {
	switch task {
	case agent.TaskTake:
		return r.keeper.Take(ctx, decided)
	case agent.TaskBootstrap:
		return r.bootstrap(ctx)
	case agent.TaskClone:
		return r.clone(ctx)
	case agent.TaskRewind:
		return r.rewind(ctx)
	case agent.TaskDiagnose:
		return r.diagnose(ctx)
	case agent.TaskStartPrimary:
		return r.start(ctx, false)
	case agent.TaskStartReplica:
		return r.start(ctx, true)
	case agent.TaskProvision:
		return r.provision(ctx)
	case agent.TaskConfigure:
		return r.configure(ctx)
	case agent.TaskStop:
		return r.stop(ctx)
	case agent.TaskRestart:
		return r.restart(ctx)
	case agent.TaskFence:
		return r.fence(ctx)
	default:
		return fmt.Errorf("task %s is not known", task)
	}
}

func (r *Runner) bootstrap(ctx context.Context) error {
	defer r.inspect(ctx)
	return r.options.Volume.Bootstrap(ctx, r.programs, r.options.SuperuserPassword)
}

func (r *Runner) clone(ctx context.Context) error {
	return r.replaceData(ctx, (*Runner).cloned, func(primary pg.Upstream) error {
		return r.options.Volume.Clone(ctx, r.programs, primary)
	})
}

func (r *Runner) rewind(ctx context.Context) error {
	rewound := func(r *Runner) { r.facts.Repairs.Rewinds++ }
	return r.replaceData(ctx, rewound, func(primary pg.Upstream) error {
		return r.options.Volume.Rewind(ctx, r.programs, primary)
	})
}

// costly is after what time a failed attempt to replace data was a load on the primary.
const costly = 10 * time.Second

// replaceData changes a replica's data with the help of the primary, after which what was known of it is void. note
// notes that, with mu held.
func (r *Runner) replaceData(ctx context.Context, note func(*Runner), replace func(primary pg.Upstream) error) error {
	if err := r.refreshKeys(); err != nil {
		return err
	}
	r.mu.Lock()
	primary, expected := r.upstream(r.facts.Primary), r.facts.ExpectedSystemID()
	r.mu.Unlock()
	// Nothing is given up before the primary is known to live, and to be the one.
	systemID, err := primary.Identify(ctx)
	if err != nil {
		return err
	}
	if expected != "" && systemID != expected {
		return fmt.Errorf("%s has the database %s, but this cluster is %s; nothing was changed", primary.Host, systemID, expected)
	}
	begun := time.Now()
	err = replace(primary)
	r.inspect(ctx)
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		if time.Since(begun) > costly {
			r.update(func(*agent.Facts) { note(r) })
		}
		return err
	}
	r.update(func(f *agent.Facts) {
		note(r)
		f.Diagnosis, f.Server.Broken, f.Server.LastError = agent.Diagnosis{}, false, ""
		r.starts, r.memory.Ahead = starts{}, ""
		r.remember()
	})
	return nil
}

// An instance that does not stream after it was cloned waits before it is cloned again, twice as long each time: a
// clone reads the whole database from the primary, and whatever spoiled the last one may do so again.
const (
	cloneWait    = time.Minute
	cloneWaitMax = 30 * time.Minute
)

// cloneWaitAfter is how long to wait after a number of clones that led to nothing.
func cloneWaitAfter(clones int) time.Duration {
	wait := cloneWait
	for range clones - 1 {
		wait = min(2*wait, cloneWaitMax)
	}
	return wait
}

// cloned notes a clone, and has the next one wait. The caller holds mu.
func (r *Runner) cloned() {
	r.facts.Repairs.Clones++
	r.facts.Repairs.Waiting = true
	clones := r.facts.Repairs.Clones
	time.AfterFunc(cloneWaitAfter(clones), func() {
		r.update(func(f *agent.Facts) {
			if f.Repairs.Clones == clones {
				f.Repairs.Waiting = false
			}
		})
	})
}

// start starts PostgreSQL with the configuration of its role.
func (r *Runner) start(ctx context.Context, replica bool) error {
	if err := r.refreshKeys(); err != nil {
		return err
	}
	r.mu.Lock()
	wanted, ending := r.wanted(), r.facts.Server.LastError
	configuration, inForce := r.configuration(wanted.upstream)
	r.mu.Unlock()
	if replica {
		if err := r.options.Volume.MarkReplica(); err != nil {
			return err
		}
		defer r.inspect(ctx)
	}
	server := r.server()
	refused, err := server.Configure(ctx, configuration)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	process, err := server.Start(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.settings.applied, r.settings.inForce, r.settings.refused = wanted, inForce, refused
	r.starts.at = time.Time{}
	r.mu.Unlock()
	r.launch(ctx, process, replica, ending)
	return nil
}

func (r *Runner) provision(ctx context.Context) error {
	r.mu.Lock()
	slots := r.slots()
	r.facts.ProvisionDue = false
	r.mu.Unlock()
	err := r.server().Provision(ctx, pg.Provision{
		SuperuserPassword: r.options.SuperuserPassword, AppPassword: r.options.AppPassword,
		AppUser: naming.UserApp, AppDatabase: naming.DatabaseApp, Slots: slots,
	})
	r.mu.Lock()
	r.facts.Provisioned = r.facts.Provisioned || err == nil
	r.facts.ProvisionDue = r.facts.ProvisionDue || err != nil
	r.mu.Unlock()
	// The Lease learns the database's identity without waiting for the next renewal.
	r.keeper.poke()
	return err
}

func (r *Runner) configure(ctx context.Context) error {
	if err := r.refreshKeys(); err != nil {
		return err
	}
	r.mu.Lock()
	wanted, process := r.wanted(), r.process
	configuration, inForce := r.configuration(wanted.upstream)
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	refused, err := r.server().Configure(ctx, configuration)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	result, err := process.ReloadAndCheck(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings.applied, r.settings.inForce, r.settings.refused = wanted, inForce, refused
	r.settings.pending, r.settings.rejected = result.PendingRestart, result.Refused
	return nil
}

// diagnose asks the primary whether the data can follow it.
func (r *Runner) diagnose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*observeTimeout)
	defer cancel()
	control, err := r.options.Volume.ControlData(ctx, r.programs)
	if err != nil {
		return err
	}
	r.mu.Lock()
	primary, o, trouble := r.upstream(r.facts.Primary), r.observed, ""
	if r.process != nil {
		trouble = r.process.ReceiverTrouble()
	}
	r.mu.Unlock()
	own := agent.Position{
		SystemID: control.SystemID, Timeline: max(control.LastTimeline(), o.Timeline),
		At: max(control.Checkpoint, control.MinRecoveryEnd, o.Received, o.Replayed, o.Written),
	}
	source, err := primary.Source(ctx, own, control.SegmentSize)
	if err != nil {
		return err
	}
	d := agent.Diagnose(own, source)
	if d.Verdict == agent.VerdictStream {
		d.Detail = trouble
	}
	r.log.Info("Diagnosed why the instance does not follow", "verdict", d.Verdict, "detail", d.Detail)
	r.update(func(f *agent.Facts) {
		f.Diagnosis = d
		if d.Verdict == agent.VerdictAhead {
			r.memory.Ahead = d.Detail
			r.remember()
		}
	})
	if d.Verdict == agent.VerdictStream || d.Verdict == agent.VerdictForeign {
		time.AfterFunc(diagnosisLife, func() {
			r.update(func(f *agent.Facts) {
				if f.Diagnosis == d {
					f.Diagnosis = agent.Diagnosis{}
				}
			})
		})
	}
	return nil
}

// diagnosisLife is how long a diagnosis that asks for nothing is believed.
const diagnosisLife = 10 * time.Second
