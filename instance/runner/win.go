package runner

import (
	"context"
	"errors"
	"time"

	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
)

// lockPolling is how often a lock is tried that others hold while the API server thinks.
const lockPolling = 5 * time.Millisecond

// lock is Lock of mu, for no longer than ctx: a candidate that has lost to another one is to follow it, and not to wait
// for the API server first.
func (k *keeper) lock(ctx context.Context) error {
	for !k.mu.TryLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPolling):
		}
	}
	return nil
}

// candidacy is the Lease as it is now, for an instance that wants to take it from somebody else.
func (k *keeper) candidacy(ctx context.Context) (lease.Lease, error) {
	if err := k.lock(ctx); err != nil {
		return lease.Lease{}, err
	}
	defer k.mu.Unlock()
	if err := k.read(ctx); err != nil {
		return lease.Lease{}, err
	}
	return k.last, k.current(ctx)
}

// Win takes the Lease for an instance that was elected while it was as seen. Against renewals of a holder that is only
// suspected it is tried again, but not against any other change.
func (k *keeper) Win(ctx context.Context, l, seen lease.Lease, againstRenewals bool) (won bool, err error) {
	const attempts = 5
	if err = k.lock(ctx); err != nil {
		return false, err
	}
	defer k.mu.Unlock()
	for range attempts {
		renewed := againstRenewals && k.last.Same(seen)
		if k.last.Version != seen.Version && !renewed {
			return false, nil
		}
		l.Version, k.winning = k.last.Version, l.Term
		err = k.write(ctx, l)
		if !errors.Is(err, kube.ErrConflict) {
			return err == nil, err
		}
		if err = k.read(ctx); err != nil {
			return false, err
		}
	}
	return false, nil
}
