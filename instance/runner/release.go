package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

const (
	// releaseRetry is how soon a release of the Lease that failed is tried again.
	releaseRetry = 200 * time.Millisecond
	// releasePatience is how long it may take where PostgreSQL could be started again instead.
	releasePatience = 2 * time.Second
	// lookLife is for how long what a primary last saw of its replicas is believed.
	lookLife = 10 * time.Second
)

// heirs are the replicas that could take over, the best first. The caller holds mu.
func (r *Runner) heirs(s standbys) []pg.Standby {
	config := r.facts.Config
	if config == nil || !config.FailoverEnabled || time.Since(s.at) > lookLife {
		return nil
	}
	return s.near(uint64(max(0, config.MaxLagBytes)), config.Members)
}

// abandon has the Lease given away, because a primary does not serve any more, if one of the replicas that it last had
// can take over and the API server answers, without which nobody can. The caller holds mu.
func (r *Runner) abandon(s standbys, why string) {
	if len(r.heirs(s)) > 0 && r.keeper.answers() {
		r.facts.Abandon, r.lastWritten = why, s.written
	}
}

// giveAway gives the Lease to whoever may take it. Nothing of PostgreSQL runs any more then. If the API server does not
// answer, PostgreSQL is started again.
func (r *Runner) giveAway(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	r.mu.Lock()
	process, why := r.process, r.facts.Abandon
	r.mu.Unlock()
	defer r.update(func(f *agent.Facts) { f.Abandon = "" })
	if process != nil {
		if err := r.expecting(process.Done(), func() error { return process.Kill(ctx) }); err != nil {
			return err
		}
		defer r.inspect(ctx)
	} else if err := r.server().Clear(ctx); err != nil {
		return err
	}
	r.log.Info("Gives the Lease away", "reason", why)
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	err := r.keeper.GiveAway(ctx, 0, "")
	if err != nil {
		r.keeper.poke() // The attempt ended the licence, which a start needs.
	}
	return err
}

// GiveAway gives the Lease up: the log ended at end in good order, 0 if it did not, and successor has all of it, empty
// if nobody is known to. It is tried until it is done, another one holds the Lease, or ctx ends. All processes of
// PostgreSQL must have gone.
func (k *keeper) GiveAway(ctx context.Context, end postgres.LSN, successor string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	tick := time.NewTicker(releaseRetry)
	defer tick.Stop()
	for {
		if !k.known || k.last.Holder != k.identity {
			return nil
		}
		l := k.last.Yielded(end, successor)
		l.WALLSN = max(l.WALLSN, k.ended(), end)
		err := k.write(ctx, l)
		if errors.Is(err, kube.ErrConflict) {
			if err = k.read(ctx); err == nil {
				continue
			}
		}
		if err == nil {
			k.runner.hintPeers(ctx, l.Term)
			return nil
		}
		if errors.Is(err, kube.ErrNoLease) {
			return nil // The cluster is being deleted.
		}
		if errors.Is(err, kube.ErrDismissed) {
			return fmt.Errorf("cannot give the Lease away: %w", err) // So it is, and its pods should make room for the next.
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("cannot give the Lease away: %w", err)
		}
	}
}

// ended is how far the primary had written its log when it was last looked at.
func (k *keeper) ended() postgres.LSN {
	k.runner.mu.Lock()
	defer k.runner.mu.Unlock()
	return k.runner.lastWritten
}
