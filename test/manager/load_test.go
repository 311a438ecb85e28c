package manager

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// load does one thing 20 times a second until the test ends; its first failure fails the test.
type load struct {
	count  atomic.Int64
	cancel context.CancelFunc
	done   chan error
}

func startLoad(t *testing.T, one func(context.Context) error) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, done: make(chan error, 1)}
	go func() { l.done <- l.run(ctx, one) }()
	t.Cleanup(cancel)
	return l
}

func (l *load) run(ctx context.Context, one func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		// Not with ctx: what was begun is finished.
		if err := one(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("after %d that passed: %w", l.count.Load(), err)
		}
		l.count.Add(1)
	}
}

// passes waits until n more have passed.
func (l *load) passes(t *testing.T, n int64) {
	t.Helper()
	want := l.count.Load() + n
	eventually(t, func(context.Context) error {
		select {
		case err := <-l.done:
			t.Fatalf("the load failed: %v", err)
		default:
		}
		if got := l.count.Load(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// stop ends the load and returns how many passed.
func (l *load) stop(t *testing.T) int64 {
	t.Helper()
	l.cancel()
	if err := <-l.done; err != nil {
		t.Fatalf("the load failed: %v", err)
	}
	return l.count.Load()
}
