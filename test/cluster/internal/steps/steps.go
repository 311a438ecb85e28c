// Package steps runs named steps, each as soon as those it needs are done, and
// tells the user how far it is.
package steps

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// Step is one piece of work.
type Step struct {
	Name string
	// After names the steps that must be done first.
	After []string
	// Run does the work and returns what to tell the user: short, in the past
	// tense or as a fact.
	Run func(ctx context.Context) (string, error)
}

// Run runs all steps and prints one line for each that is done. The first error
// cancels the others and is returned.
func Run(ctx context.Context, out io.Writer, all []Step) error {
	if err := check(all); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress := &progress{out: out, begin: time.Now(), total: len(all)}
	done := map[string]chan struct{}{}
	for _, step := range all {
		done[step.Name] = make(chan struct{})
	}
	var group sync.WaitGroup
	for _, step := range all {
		group.Go(func() {
			for _, name := range step.After {
				select {
				case <-done[name]:
				case <-ctx.Done():
					return
				}
			}
			if ctx.Err() != nil {
				return
			}
			message, err := step.Run(ctx)
			if err != nil {
				cancel(fmt.Errorf("%s: %w", step.Name, err))
				return
			}
			progress.print(step.Name, message)
			close(done[step.Name])
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// check refuses a step that needs a later or unknown one, so that there is
// never a circle to wait in.
func check(all []Step) error {
	known := map[string]bool{}
	for _, step := range all {
		for _, name := range step.After {
			if !known[name] {
				return fmt.Errorf("step %q needs %q, which does not come before it", step.Name, name)
			}
		}
		if known[step.Name] {
			return fmt.Errorf("step %q is there twice", step.Name)
		}
		known[step.Name] = true
	}
	return nil
}

type progress struct {
	mu    sync.Mutex
	out   io.Writer
	begin time.Time
	count int
	total int
}

func (p *progress) print(name, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	if message != "" {
		message = ": " + message
	}
	fmt.Fprintf(p.out, "[%2d/%d] %5.1fs  %s%s\n", p.count, p.total, time.Since(p.begin).Seconds(), name, message)
}
