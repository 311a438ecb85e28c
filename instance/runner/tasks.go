package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/fence"
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
	case agent.TaskRevive:
		return r.revive(ctx)
	case agent.TaskFence:
		return r.fence(ctx)
	case agent.TaskElect:
		return r.elect(ctx)
	case agent.TaskPromote:
		return r.promote(ctx)
	case agent.TaskRelease:
		return r.giveAway(ctx)
	case agent.TaskHandOver:
		return r.handOver(ctx)
	default:
		return fmt.Errorf("task %s is not known", task)
	}
}

func (r *Runner) bootstrap(ctx context.Context) error {
	defer r.inspect(ctx)
	return r.options.Volume.Bootstrap(ctx, r.programs, r.options.SuperuserPassword)
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
		if err := r.becomeReplica(ctx); err != nil {
			return err
		}
		defer r.inspect(ctx)
	} else if err := r.leads(); err != nil {
		return err
	}
	server := r.server()
	refused, err := server.Configure(ctx, configuration)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, err = r.override(wanted.upstream); err != nil {
		return err
	}
	process, err := r.startServer(ctx, server, replica)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.settings.applied, r.settings.inForce, r.settings.refused = wanted, inForce, refused
	r.settings.hba = configuration.HBA
	r.starts.at = time.Time{}
	r.mu.Unlock()
	r.launch(ctx, process, replica, ending)
	return nil
}

// startServer starts the postmaster; a primary's only with a licence, and watched by the sentinel from the beginning.
func (r *Runner) startServer(ctx context.Context, server pg.Server, replica bool) (*pg.Process, error) {
	if replica {
		return server.Start(ctx)
	}
	if err := r.licence.admit(ctx); err != nil {
		return nil, err
	}
	process, err := server.Start(ctx)
	if err != nil {
		r.licence.watch(fence.Nobody)
		return nil, err
	}
	r.licence.watch(process.Pid())
	return process, nil
}

// becomeReplica marks the data as a replica's. A primary's may be the only copy: somebody who holds the Lease but is no
// primary is not given way to, unless another instance was elected since.
func (r *Runner) becomeReplica(ctx context.Context) error {
	r.mu.Lock()
	primary := r.facts.Data.Primary() && !r.facts.Outdated()
	r.mu.Unlock()
	if primary {
		if _, err := r.proven(ctx); err != nil {
			return fmt.Errorf("keeps its data as a primary's until the holder of the Lease proves to be the primary: %w", err)
		}
	}
	return r.options.Volume.MarkReplica()
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
	lines, fallback := r.facts.Config.HBA, r.goodHBA()
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	refused, err := r.server().Configure(ctx, configuration)
	if err != nil {
		return err
	}
	if _, err = r.override(wanted.upstream); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	refusedHBA, err := r.server().TryHBA(ctx, lines, fallback)
	if err != nil {
		return err
	}
	result, err := process.ReloadAndCheck(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settings.refusedHBA = refusedHBA; len(refusedHBA) == 0 {
		r.hbaTaken(lines)
	}
	r.configured(wanted, inForce, refused, result)
	return nil
}
