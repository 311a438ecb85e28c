// Package ledger writes to a database without pause and checks afterwards that
// every acknowledged write is there and nothing else is.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Session is one connection to the database.
type Session interface {
	// Prepare makes what Insert needs; it is harmless when that exists.
	Prepare(ctx context.Context) error
	// Insert commits one row. A nil error is the database's acknowledgement.
	Insert(ctx context.Context, id int64) error
	// IDs are all rows there are.
	IDs(ctx context.Context) ([]int64, error)
	// Close ends the session.
	Close()
}

// Connect opens a session.
type Connect func(ctx context.Context) (Session, error)

// pace is the time between two writes, attemptTimeout what one may take, connecting included.
const (
	pace           = 10 * time.Millisecond
	attemptTimeout = 2 * time.Second
)

// Ledger is one writer and what it remembers.
type Ledger struct {
	connect Connect
	stop    context.CancelFunc
	done    chan struct{}

	mu           sync.Mutex
	next         int64 // the id of the next attempt; ids start at 1 and are never used twice
	acknowledged []int64
	lastAck      time.Time
	longestGap   time.Duration
	lastError    error
}

// Start makes the table and begins to write, one row after another, with a new
// connection after each error, until Stop.
func Start(ctx context.Context, connect Connect) (*Ledger, error) {
	session, err := connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if err := session.Prepare(ctx); err != nil {
		session.Close()
		return nil, fmt.Errorf("ledger: make the table: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Ledger{connect: connect, stop: cancel, done: make(chan struct{}), next: 1, lastAck: time.Now()}
	go l.write(ctx, session)
	return l, nil
}

// Stop ends the writer and waits for it. It may be called more than once.
func (l *Ledger) Stop() {
	l.stop()
	<-l.done
}

// Acknowledged is the number of acknowledged writes so far, and the last error.
func (l *Ledger) Acknowledged() (writes int, last error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged), l.lastError
}

// LongestGap is the longest time between two acknowledged writes: the outage
// that a client saw.
func (l *Ledger) LongestGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.longestGap, 0)
}

// Verify compares the database with what was acknowledged. Call it after Stop.
// A write whose answer never came may be there or not; an acknowledged one must.
func (l *Ledger) Verify(ctx context.Context) error {
	session, err := l.connect(ctx)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer session.Close()
	ids, err := session.IDs(ctx)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acknowledged) == 0 {
		return errors.New("ledger: no write was ever acknowledged, so nothing was checked")
	}
	present := make(map[int64]bool, len(ids))
	for _, id := range ids {
		if present[id] {
			return fmt.Errorf("ledger: row %d is there twice", id)
		}
		if id < 1 || id >= l.next {
			return fmt.Errorf("ledger: row %d was never written", id)
		}
		present[id] = true
	}
	var lost []int64
	for _, id := range l.acknowledged {
		if !present[id] {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("ledger: %d of %d acknowledged writes are lost, the first is row %d, the last row %d",
			len(lost), len(l.acknowledged), lost[0], lost[len(lost)-1])
	}
	return nil
}

func (l *Ledger) write(ctx context.Context, session Session) {
	defer close(l.done)
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if session != nil {
				session.Close()
			}
			return
		case <-ticker.C:
			session = l.attempt(ctx, session)
		}
	}
}

// attempt writes one row and returns the session for the next one, or nothing after an error.
func (l *Ledger) attempt(ctx context.Context, session Session) Session {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if session == nil {
		var err error
		if session, err = l.connect(ctx); err != nil {
			l.remember(0, err)
			return nil
		}
	}
	l.mu.Lock()
	id := l.next
	l.next++
	l.mu.Unlock()
	err := session.Insert(ctx, id)
	l.remember(id, err)
	if err != nil {
		session.Close()
		return nil
	}
	return session
}

func (l *Ledger) remember(id int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lastError = err
		return
	}
	now := time.Now()
	l.longestGap = max(l.longestGap, now.Sub(l.lastAck))
	l.lastAck = now
	l.acknowledged = append(l.acknowledged, id)
}
