package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/pg"
)

// handOver stops a primary for a replica that an order names to take over at once.
func (r *Runner) handOver(ctx context.Context) error {
	r.mu.Lock()
	order, problem := r.switchover()
	if order.ID != "" && problem == "" {
		// It is noted before, because it is not begun twice.
		r.memory.LastOrder = order.ID
	}
	r.mu.Unlock()
	if order.ID == "" || problem != "" {
		return nil // The main loop knows by now, or soon will.
	}
	if err := r.saveMemory(); err != nil {
		return err
	}
	r.log.Info("Hands over", "to", order.Target, "order", order.ID)
	return r.retire(ctx, order.Target)
}

// switchover is the order to hand over that this instance has not carried out, and why it cannot be carried out yet.
// The caller holds mu.
func (r *Runner) switchover() (order contract.Order, problem string) {
	f := r.facts
	for _, o := range f.Config.Orders {
		if o.Instance == f.Self && o.Kind == contract.OrderSwitchover && o.ID != r.memory.LastOrder && o.Term == f.Lease.Term {
			order = o
		}
	}
	if order.ID == "" || f.Lease.Holder != r.keeper.identity || order.Target == f.Self {
		return contract.Order{}, ""
	}
	heirs := r.heirs(r.standbys)
	is := func(s pg.Standby) bool { return s.Instance == order.Target }
	switch {
	case !f.Config.FailoverEnabled:
		return order, "spec.failover.enabled is false, so that no other instance takes over"
	case !r.keeper.answers():
		return order, "the API server does not answer"
	case slices.ContainsFunc(heirs, is):
		return order, ""
	}
	if i := slices.IndexFunc(r.standbys.all, is); i >= 0 && r.standbys.all[i].Streaming {
		return order, fmt.Sprintf("%s lacks %d bytes of the log, more than spec.failover.maxLag",
			order.Target, r.standbys.written.BytesAfter(r.standbys.all[i].Flushed))
	}
	return order, order.Target + " does not stream from the primary"
}

// retire ends a primary cleanly, so that another instance takes over: prefer, if it can.
func (r *Runner) retire(ctx context.Context, prefer string) error {
	begun := time.Now()
	r.mu.Lock()
	process := r.process
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.options.ShutdownTimeout)
	defer cancel()
	r.checkpoint(limited)
	r.mu.Lock()
	successor := choose(r.heirs(r.standbys), prefer)
	r.lastWritten = r.standbys.written
	r.mu.Unlock()
	stopped := r.expecting(process.Done(), func() error { return process.Stop(limited) })
	select {
	case <-process.Done():
	default:
		return stopped
	}
	// Also a shutdown that took too long has come to its end.
	ctx = context.WithoutCancel(ctx)
	defer r.inspect(ctx)
	ctx, cancelRelease := context.WithDeadline(ctx, begun.Add(r.options.ShutdownTimeout+releasePatience))
	defer cancelRelease()
	if err := r.server().Clear(ctx); err != nil {
		return err
	}
	return r.release(ctx, successor)
}

// choose is the preferred one of the heirs, else the first; empty if there is none.
func choose(heirs []pg.Standby, prefer string) string {
	for _, heir := range heirs {
		if heir.Instance == prefer {
			return prefer
		}
	}
	if len(heirs) == 0 {
		return ""
	}
	return heirs[0].Instance
}

// release gives the Lease up after PostgreSQL stopped. Nobody renews it any more, so when that does not succeed for as
// long as the Lease lasts, others take it all the same. Where nobody may take over, its holder stays.
func (r *Runner) release(ctx context.Context, successor string) error {
	ctx, cancel := context.WithTimeout(ctx, r.keeper.duration()+releasePatience)
	defer cancel()
	control, err := r.options.Volume.ControlData(ctx, r.programs)
	if err != nil {
		r.log.Error(err, "Failed to read where the log ended")
	}
	end := control.Checkpoint
	if err != nil || !control.State.CleanlyStopped() {
		end, successor = 0, ""
	}
	r.mu.Lock()
	failover := r.facts.Config != nil && r.facts.Config.FailoverEnabled
	r.mu.Unlock()
	if failover {
		return r.keeper.GiveAway(ctx, end, successor)
	}
	if end == 0 {
		return nil
	}
	return r.keeper.Release(ctx, end)
}
