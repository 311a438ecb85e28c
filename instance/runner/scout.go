package runner

import (
	"context"
	"time"
)

// The -rw EndpointSlice is read while an instance looks for its primary: often at first, then less.
const (
	scoutInterval    = 200 * time.Millisecond
	scoutIntervalMax = 2 * time.Second
)

// scout looks for the primary while the instance has one to follow and does not stream from it.
type scout struct {
	runner *Runner
	poked  bell
}

func newScout(r *Runner) *scout { return &scout{runner: r, poked: newBell()} }

func (s *scout) poke() { s.poked.ring() }

func (s *scout) run(ctx context.Context) {
	following := ""
	wait := scoutInterval
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
		case <-s.poked:
		}
		follow, streaming := s.target()
		if follow == "" || streaming {
			following = ""
			continue
		}
		if follow != following {
			following, wait, due = follow, scoutInterval, true
		}
		if !due {
			continue
		}
		due = false
		s.look(ctx)
		timer.Reset(wait)
		wait = min(wait*5/4, scoutIntervalMax)
	}
}

func (s *scout) target() (follow string, streaming bool) {
	s.runner.mu.Lock()
	defer s.runner.mu.Unlock()
	return s.runner.decision.Follow, s.runner.facts.Server.Streaming
}

func (s *scout) look(ctx context.Context) {
	primary, err := s.runner.kube.Primary(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.runner.log.Error(err, "Failed to read where the primary is")
		}
		return
	}
	s.runner.mu.Lock()
	news := s.runner.facts.Primary != primary
	s.runner.facts.Primary = primary
	s.runner.mu.Unlock()
	if news {
		s.runner.poke()
	}
}
