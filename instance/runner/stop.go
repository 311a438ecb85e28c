package runner

import (
	"context"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/pg"
)

// stop ends PostgreSQL cleanly; a primary whose pod ends gives the Lease up.
func (r *Runner) stop(ctx context.Context) error {
	r.mu.Lock()
	process, primary := r.process, !r.facts.Server.Replica && r.facts.Server.Accepting
	retires := primary && r.facts.Stopping && r.facts.Lease.Holder == r.keeper.identity
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	if retires {
		return r.retire(ctx, "")
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.ShutdownTimeout)
	defer cancel()
	if primary {
		r.checkpoint(ctx)
	}
	if err := r.expecting(process.Done(), func() error { return process.Stop(ctx) }); err != nil {
		return err
	}
	r.inspect(ctx)
	return nil
}

// expecting has end end a process. If it cannot, and the process goes on, its end some other time is not expected.
func (r *Runner) expecting(done <-chan struct{}, end func() error) error {
	expect := func(expected bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.expected = expected
	}
	expect(true)
	err := end()
	select {
	case <-done:
	default:
		expect(err == nil)
	}
	return err
}

// checkpoint does most of the work of a shutdown while the database still serves. It is only an attempt.
func (r *Runner) checkpoint(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.options.ShutdownTimeout/2)
	defer cancel()
	if err := r.server().Checkpoint(ctx); err != nil {
		r.log.Error(err, "Failed to write a checkpoint before the shutdown")
	}
}

// restart carries an order out once: it is noted before, because a crash meanwhile is a restart too.
func (r *Runner) restart(ctx context.Context) error {
	r.mu.Lock()
	r.memory.LastOrder = r.facts.RestartOrder
	r.mu.Unlock()
	if err := r.saveMemory(); err != nil {
		return err
	}
	return r.stop(ctx)
}

// fence ends PostgreSQL at once. What it was given to do before is void.
func (r *Runner) fence(ctx context.Context) error {
	r.mu.Lock()
	process := r.process
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	r.log.Info("Fencing PostgreSQL")
	err := r.expecting(process.Done(), func() error { return process.Fence(ctx) })
	r.inspect(ctx)
	return err
}

// revive ends a replica's PostgreSQL that hangs. To be killed does its data no harm.
func (r *Runner) revive(ctx context.Context) error {
	if err := r.fence(ctx); err != nil {
		return err
	}
	r.update(func(f *agent.Facts) {
		f.Repairs.Restarts++
		f.Server.Hung = "" // Whoever watched the old process may not have noticed its end yet.
	})
	return nil
}

// filesInterval is how often mounted files are looked at: the kubelet takes up to a minute to renew them anyway.
const filesInterval = 2 * time.Second

// watchFiles looks for renewed certificates and changed passwords, until ctx ends.
func (r *Runner) watchFiles(ctx context.Context) {
	tick := time.NewTicker(filesInterval)
	defer tick.Stop()
	passwords := ""
	for {
		if err := r.refreshKeys(); err != nil {
			r.log.Error(err, "Failed to read certificates")
		}
		now := pg.Fingerprint(r.options.SuperuserPassword, r.options.AppPassword)
		if now != passwords && passwords != "" {
			r.update(func(f *agent.Facts) { f.ProvisionDue = true })
		}
		passwords = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refreshKeys copies renewed certificates; the server is then configured again, and with it reloads them.
func (r *Runner) refreshKeys() error {
	r.keys.Lock()
	defer r.keys.Unlock()
	serverChanged, err := r.options.ServerTLS.Refresh()
	if err != nil {
		return err
	}
	clientChanged, err := r.options.ClientTLS.Refresh()
	if err != nil {
		return err
	}
	if !serverChanged && !clientChanged && r.serialKnown() {
		return nil
	}
	serial, err := r.options.ServerTLS.Serial()
	if err != nil {
		return err
	}
	r.update(func(*agent.Facts) {
		r.settings.serial = serial
		r.settings.keys++
	})
	return nil
}

func (r *Runner) serialKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings.serial != ""
}
