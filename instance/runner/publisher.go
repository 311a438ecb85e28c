package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/kube"
)

// A write that failed is repeated soon, then less often.
const (
	publishRetry    = 200 * time.Millisecond
	publishRetryMax = 5 * time.Second
)

// What was written is written again though nothing changed, because others may change or delete it; a write that
// changes nothing costs the API server no revision.
const (
	// serveAgain is how long a deleted or forged EndpointSlice keeps clients from the primary: it is an outage.
	serveAgain = 10 * time.Second
	// publishAgain is how long a wrong report or label may stay. It misleads people and the -ro Service, and every
	// instance writes it, so it is rarer. It is a multiple of serveAgain.
	publishAgain = 60 * time.Second
)

// publication is what others are to see of an instance.
type publication struct {
	report, label string
	// serve leads the -rw Service here; leave has it refuse connections. Neither leaves it as it is.
	serve, leave bool
	// term in which it serves, or served: in each it says so again, as another may have said so in between.
	term int32
}

// publisher writes what changed of a publication at once, and all of it from time to time. Where the -rw Service leads
// is written beside the rest, so that nothing else holds it up.
type publisher struct {
	runner *Runner
	// served and poked tell of changes of where the Service leads, and of the rest; labelled of a written label.
	served, poked, labelled bell
	// doubted has everything written again at once.
	doubted bell

	mu     sync.Mutex
	wanted publication
	done   publication
	// alone is the last term in which the primary's label was taken off all other pods.
	alone int32
	// settled is closed and replaced when done has become wanted.
	settled chan struct{}
}

func newPublisher(r *Runner) *publisher {
	return &publisher{
		runner: r, served: newBell(), poked: newBell(), labelled: newBell(),
		doubted: newBell(), settled: make(chan struct{}),
	}
}

// doubt has everything written again now: others may have written while the API server could not be reached.
func (p *publisher) doubt() { p.doubted.ring() }

// want sets what is to be seen.
func (p *publisher) want(report contract.Report, label string, d agent.Decision) {
	content, err := json.Marshal(report)
	if err != nil {
		p.runner.log.Error(err, "Failed to write the report")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := publication{report: string(content), label: label, term: report.Term}
	next.serve = d.Serve
	if d.State == contract.StateStopping && !d.Leave {
		// PostgreSQL serves until the checkpoint before its shutdown is written, and a successor leads clients to itself.
		next.serve, next.term = p.wanted.serve, p.wanted.term
	}
	// Only who served has something to leave.
	next.leave = d.Leave && (p.done.serve || p.done.leave || p.wanted.serve || p.wanted.leave)
	if next.leave {
		// In the term in which it served: what a successor wrote in a later one stays.
		next.term = p.wanted.term
		if p.done.serve || p.done.leave {
			next.term = p.done.term
		}
	}
	if next == p.wanted {
		return
	}
	p.wanted = next
	p.served.ring()
	p.poked.ring()
}

func (p *publisher) run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { p.repeat(ctx, p.served, p.serve) })
	group.Go(func() { p.repeat(ctx, p.poked, p.publish) })
	group.Go(func() { p.repeat(ctx, p.labelled, p.unlabel) })
	defer group.Wait()
	again := time.NewTicker(serveAgain)
	defer again.Stop()
	published := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			all := time.Since(published) >= publishAgain
			if all {
				published = time.Now()
			}
			p.insist(ctx, all)
		case <-p.doubted:
			published = time.Now()
			p.insist(ctx, true)
		}
	}
}

// repeat writes at each change, and again while that fails, until ctx ends.
func (p *publisher) repeat(ctx context.Context, changed bell, write func(context.Context) error) {
	retry := publishRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-timer.C:
		}
		if err := write(ctx); err != nil && ctx.Err() == nil {
			p.runner.log.Error(err, "Failed to publish the instance's state")
			timer.Reset(retry)
			retry = min(2*retry, publishRetryMax)
			continue
		}
		retry = publishRetry
	}
}

// serve leads the -rw Service as is wanted.
func (p *publisher) serve(ctx context.Context) error {
	for {
		p.mu.Lock()
		wanted, done := p.wanted, p.done
		p.mu.Unlock()
		if wanted.serves() == done.serves() {
			return nil
		}
		switch {
		case wanted.leave && !done.leave:
			if err := p.lead(ctx, false, wanted.term); err != nil {
				return err
			}
		case wanted.serve && (!done.serve || done.term != wanted.term):
			begun := time.Now()
			if err := p.lead(ctx, true, wanted.term); err != nil {
				return err
			}
			p.runner.log.Info("Led the -rw Service here", "term", wanted.term, "took", time.Since(begun).String())
		}
		p.finish(func(done *publication) { done.serve, done.leave, done.term = wanted.serve, wanted.leave, wanted.term })
	}
}

// lead leads the Service here, or has it refuse connections. A pod that has another one in its place learns of that.
func (p *publisher) lead(ctx context.Context, ready bool, term int32) error {
	err := p.runner.kube.Serve(ctx, p.runner.options.Port, ready, term)
	if errors.Is(err, kube.ErrReplaced) {
		p.runner.update(func(f *agent.Facts) { f.Replaced = true })
	}
	return err
}

// serves is the part of a publication that concerns the Service.
func (p publication) serves() publication {
	p.report, p.label = "", ""
	return p
}

// publish writes report and label as is wanted. Clients are led here before the label says so, which they may wait for.
func (p *publisher) publish(ctx context.Context) error {
	for {
		p.mu.Lock()
		wanted, done := p.wanted, p.done
		p.mu.Unlock()
		if wanted.report == done.report && wanted.label == done.label || wanted.serve && wanted.serves() != done.serves() {
			return nil
		}
		if err := p.runner.kube.Publish(ctx, wanted.report, wanted.label); err != nil {
			return err
		}
		p.finish(func(done *publication) { done.report, done.label = wanted.report, wanted.label })
		p.labelled.ring()
	}
}

// unlabel takes the primary's label off all other members' pods, once in each term that this instance leads.
func (p *publisher) unlabel(ctx context.Context) error {
	p.mu.Lock()
	done, alone := p.done, p.alone
	p.mu.Unlock()
	if !done.serve || done.label != naming.RolePrimary || done.term == alone {
		return nil
	}
	r := p.runner
	r.mu.Lock()
	var others []string
	if r.facts.Config != nil {
		others = r.others()
	}
	r.mu.Unlock()
	for _, other := range others {
		if err := r.kube.Unlabel(ctx, other, done.term); err != nil {
			return fmt.Errorf("label of %s: %w", other, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alone = done.term
	return nil
}

// finish notes what was written, and tells who waits for all of it.
func (p *publisher) finish(note func(done *publication)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	served := p.done.serves()
	note(&p.done)
	if p.done.serves() != served {
		p.poked.ring()
	}
	if p.done == p.wanted {
		close(p.settled)
		p.settled = make(chan struct{})
	}
}

// insist writes again what is done and still wanted: where the -rw Service leads, and if all, report and label too. What
// fails is repeated at the next occasion.
func (p *publisher) insist(ctx context.Context, all bool) {
	p.mu.Lock()
	wanted, done := p.wanted, p.done
	p.mu.Unlock()
	if wanted.serve && done.serve {
		if err := p.lead(ctx, true, wanted.term); err != nil && ctx.Err() == nil {
			p.runner.log.Error(err, "Failed to lead the -rw Service here again")
		}
	}
	if all && done.report != "" && done.report == wanted.report && done.label == wanted.label {
		if err := p.runner.kube.Publish(ctx, done.report, done.label); err != nil && ctx.Err() == nil {
			p.runner.log.Error(err, "Failed to publish the instance's state again")
		}
	}
}

// flush waits until everything wanted is written, or ctx ends.
func (p *publisher) flush(ctx context.Context) {
	for {
		p.mu.Lock()
		settled, done := p.settled, p.wanted == p.done
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return
		}
	}
}
