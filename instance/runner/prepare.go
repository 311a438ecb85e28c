package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/pg"
)

// prepareRetry is how often what keeps the agent from working is looked at again.
const prepareRetry = 2 * time.Second

// configChanged takes a new configuration over; one that cannot be read leaves the last one in force.
func (r *Runner) configChanged(text string) {
	config := &contract.Config{}
	if err := json.Unmarshal([]byte(text), config); err != nil {
		r.log.Error(err, "Failed to read the operator's ConfigMap")
		r.update(func(f *agent.Facts) {
			f.ConfigProblem = fmt.Sprintf("the operator's ConfigMap cannot be read: %v", err)
		})
		return
	}
	if config.LeaseDurationSeconds <= 0 {
		config.LeaseDurationSeconds = defaultLeaseSeconds
	}
	r.mu.Lock()
	old := r.facts.Config
	r.facts.Config, r.facts.ConfigProblem = config, ""
	if old == nil || !reflect.DeepEqual(old.Members, config.Members) {
		r.facts.ProvisionDue = true
	}
	r.memory.Config = config
	r.remember()
	r.mu.Unlock()
	r.view.follow(config)
	r.keeper.poke()
	r.poke()
}

// prepare makes the volume the agent's and finds PostgreSQL, and tries again as long as it cannot.
func (r *Runner) prepare(ctx context.Context) {
	tick := time.NewTicker(polling)
	defer tick.Stop()
	for {
		wait := polling
		switch prepared, err := r.prepareOnce(ctx); {
		case prepared:
			return
		case err != nil:
			wait = prepareRetry
		}
		tick.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// patience is how long the API server may take to give the configuration before the last one is used.
const patience = 5 * time.Second

// currentConfig is the configuration to work with: the API server's, or, if that does not answer, the last one.
func (r *Runner) currentConfig() *contract.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts.Config == nil && r.recalled != nil && time.Since(r.begun) > patience {
		r.log.Info("Goes on with the last known configuration, because the API server does not answer")
		r.facts.Config, r.memory.Config = r.recalled, r.recalled
	}
	return r.facts.Config
}

// polling is how often files and processes are looked at while something is about to happen.
const polling = 20 * time.Millisecond

func (r *Runner) prepareOnce(ctx context.Context) (prepared bool, err error) {
	if err = r.lock(); err != nil {
		r.update(func(f *agent.Facts) { f.Data = agent.Data{Known: true, Problem: err.Error()} })
		return false, err
	}
	config := r.currentConfig()
	if config == nil {
		return false, nil
	}
	programs, err := pg.FindPrograms(ctx, config.Version)
	if err == nil {
		_, err = pg.OSUser()
	}
	if err != nil {
		r.update(func(f *agent.Facts) { f.ProgramsProblem = err.Error() })
		return false, err
	}
	data, err := r.options.Volume.Inspect(ctx, programs)
	if err != nil {
		r.update(func(f *agent.Facts) { f.Data = agent.Data{Known: true, Problem: err.Error()} })
		return false, err
	}
	r.mu.Lock()
	r.programs = programs
	r.facts.Programs, r.facts.ProgramsProblem, r.facts.Data = programs.Version, "", data
	r.mu.Unlock()
	r.poke()
	if programs.Version.Major != config.Version || data.Problem != "" {
		return false, fmt.Errorf("not usable yet")
	}
	return true, nil
}

// lock makes the volume the agent's, finishes what an earlier one began, and recalls what it knew.
func (r *Runner) lock() error {
	if r.holdsVolume() {
		return nil
	}
	release, err := r.options.Volume.Lock()
	if err != nil {
		return err
	}
	if err = r.options.Volume.Settle(); err != nil {
		release()
		return err
	}
	m, err := recall(r.options.Volume)
	if err != nil {
		r.log.Error(err, "Failed to recall what an earlier agent knew")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locked, r.giveBack = true, release
	r.recalled = m.Config
	if r.facts.Config != nil {
		m.Config = r.facts.Config
	}
	// That another instance was the primary is safe to go on with; that this one was is not.
	if !r.facts.LeaseKnown && m.Lease != nil && m.Lease.Holder != "" && m.Lease.HeldBy() != r.options.Instance {
		r.facts.Lease, r.facts.LeaseKnown = *m.Lease, true
	}
	m.SeenTerm = max(m.SeenTerm, r.memory.SeenTerm)
	r.memory = m
	r.led(m.LedTerm)
	r.facts.Promised = m.Promised
	r.view.recall(r.options.Instance, m)
	r.facts.Diagnosis = m.diagnosis()
	r.facts.Data = agent.Data{}
	r.remember()
	return nil
}

func (r *Runner) holdsVolume() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.locked
}

func (r *Runner) unlock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locked {
		r.locked = false
		r.giveBack()
	}
}

// inspect looks at the volume again after a task changed it, also if that was cancelled.
func (r *Runner) inspect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
	defer cancel()
	if !r.holdsVolume() {
		return
	}
	data, err := r.options.Volume.Inspect(ctx, r.programs)
	if err != nil {
		data = agent.Data{Known: true, Problem: fmt.Sprintf("the data volume cannot be read: %v", err)}
		time.AfterFunc(prepareRetry, func() { r.inspect(ctx) })
	}
	r.update(func(f *agent.Facts) { f.Data = data })
}
