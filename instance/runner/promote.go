package runner

import (
	"context"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/pg"
)

// promotionTimeout is how long the log that is left to apply may take.
const promotionTimeout = 5 * time.Minute

// promote makes the running replica of an elected instance the primary. What clients do not wait for comes later: roles
// and passwords, the checkpoint.
func (r *Runner) promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, promotionTimeout)
	defer cancel()
	r.mu.Lock()
	process, l, timeline, slots := r.process, r.facts.Lease, r.facts.KnownTimeline(), r.slots()
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	steps := stopwatch{begun: time.Now()}
	if err := r.leads(); err != nil {
		return err
	}
	if err := r.configurePromotion(ctx, process); err != nil {
		return err
	}
	steps.note("configured")
	if err := r.options.Volume.ReserveTimeline(timeline, l.Newest); err != nil {
		return err
	}
	if err := r.licence.admit(ctx); err != nil {
		return err
	}
	// Also if the promotion does not come to its end now, it may later.
	r.licence.watch(process.Pid())
	o, err := process.Promote(ctx, slots)
	if err != nil {
		return err
	}
	steps.note("promoted")
	r.update(func(f *agent.Facts) {
		if r.process != process {
			return
		}
		r.promoted, r.observed, r.kept = process, o, nil
		r.promotedIn, r.promotedAt = l.Term, time.Now().UTC().Truncate(time.Millisecond)
		f.Server = agent.Server{Up: true, Accepting: true, Timeline: o.Timeline}
		f.Data.Replica = false
		f.Provisioned, f.ProvisionDue = true, true
	})
	r.log.Info("Became the primary", "term", l.Term, "timeline", o.Timeline, "steps", steps.String())
	r.hintPeers(ctx, l.Term)
	r.keeper.poke()
	go r.settle(context.WithoutCancel(ctx))
	return nil
}

// configurePromotion configures a replica as the primary that it is about to be: commits must not be acknowledged
// before they wait for those for whom the Lease says they do.
func (r *Runner) configurePromotion(ctx context.Context, process *pg.Process) error {
	r.mu.Lock()
	wanted := r.wanted()
	configuration, inForce := r.configuration(wanted.upstream)
	applied := r.settings.applied
	// Whom it followed is of no importance any more.
	applied.upstream = wanted.upstream
	done := applied == wanted
	r.mu.Unlock()
	if done {
		return nil
	}
	refused, err := r.server().Configure(ctx, configuration)
	if err != nil {
		return err
	}
	result, err := process.ReloadAndCheck(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configured(wanted, inForce, refused, result)
	return nil
}

// settle does what a new primary's clients need not wait for: others that are to be rewound wait for its checkpoint.
func (r *Runner) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, promotionTimeout)
	defer cancel()
	if err := r.server().Checkpoint(ctx); err != nil {
		r.log.Error(err, "Failed to write a checkpoint after the promotion")
	}
	r.inspect(ctx)
}
