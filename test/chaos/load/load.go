// Package load works on a database as an application's clients do, with short
// transactions over kept and over fresh connections, and records what they were
// told.
package load

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/test/chaos/history"
)

// Options say how much is done.
type Options struct {
	// Kept is the number of clients that keep their connection as long as it works; each pauses for Pace after each transaction.
	Kept int
	Pace time.Duration
	// Fresh is the time between two transactions that open a connection each, whether or not earlier ones have ended.
	Fresh time.Duration
	// Timeout bounds a transaction, connecting included.
	Timeout time.Duration
	// Seed of what the clients do.
	Seed uint64
}

// Usual is a load that two cores bear beside the databases.
func Usual(seed uint64) Options {
	return Options{Kept: 3, Pace: 20 * time.Millisecond, Fresh: 60 * time.Millisecond, Timeout: 2 * time.Second, Seed: seed}
}

// maxFresh is how many fresh connections may be under way at a time.
const maxFresh = 24

// Load is clients at work.
type Load struct {
	options Options
	config  *pgx.ConnConfig
	began   time.Time
	stop    context.CancelFunc
	workers sync.WaitGroup
	values  atomic.Int64
	lists   [slots]atomic.Int64 // appends chosen, by slot
	swaps   [slots]atomic.Int64

	mu         sync.Mutex
	operations []history.Operation
}

// Start makes the tables and lets the clients begin. They connect with what config says.
func Start(ctx context.Context, config *pgx.ConnConfig, options Options) (*Load, error) {
	l := &Load{options: options, config: config, began: time.Now()}
	if err := l.prepare(ctx); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	for client := range options.Kept {
		l.workers.Go(func() { l.keep(ctx, client) })
	}
	l.workers.Go(func() { l.open(ctx, options.Kept) })
	return l, nil
}

// Now is the time on the clock of the operations.
func (l *Load) Now() time.Duration { return time.Since(l.began) }

// Stop ends the clients, after the transactions that are under way. It may be called more than once.
func (l *Load) Stop() {
	l.stop()
	l.workers.Wait()
}

// Operations so far.
func (l *Load) Operations() []history.Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.operations)
}

// Acknowledged counts the writes acknowledged after a time, and tells the last error after it.
func (l *Load) Acknowledged(since time.Duration) (writes int, last string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range slices.Backward(l.operations) {
		if o.End < since-l.options.Timeout {
			break // in the order of their ends, nearly
		}
		switch {
		case o.End < since:
		case o.Outcome == history.Acknowledged && o.Writes():
			writes++
		case last == "":
			last = o.Error
		}
	}
	return writes, last
}

func (l *Load) remember(o history.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.operations = append(l.operations, o)
}

// keep is a client that opens a new connection only after an error.
func (l *Load) keep(ctx context.Context, client int) {
	random := rand.New(rand.NewPCG(l.options.Seed, uint64(client))) //nolint:gosec // It need not be secret.
	var s *session
	for ctx.Err() == nil {
		s = l.attempt(ctx, s, client, random)
		pause(ctx, l.options.Pace)
	}
	s.close(ctx)
}

// open begins a transaction on a fresh connection at a steady pace, and waits for none.
func (l *Load) open(ctx context.Context, client int) {
	random := rand.New(rand.NewPCG(l.options.Seed, uint64(client))) //nolint:gosec // It need not be secret.
	places := make(chan struct{}, maxFresh)
	ticker := time.NewTicker(l.options.Fresh)
	defer ticker.Stop()
	for number := client; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case places <- struct{}{}:
			mine := rand.New(rand.NewPCG(l.options.Seed, random.Uint64())) //nolint:gosec // It need not be secret.
			l.workers.Go(func() {
				l.attempt(ctx, nil, number, mine).close(ctx)
				<-places
			})
		default: // all of them hang
		}
	}
}

// attempt does one transaction, and returns the session for the next one, or nothing after an error.
func (l *Load) attempt(ctx context.Context, s *session, client int, random *rand.Rand) *session {
	// What was begun is ended, so that Stop makes no outcome unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.options.Timeout)
	defer cancel()
	o := l.choose(random)
	o.Client, o.Begin = client, l.Now()
	if s == nil {
		var err error
		if s, err = connect(ctx, l.config); err != nil {
			o.Outcome, o.Error, o.End = history.Failed, "connect: "+err.Error(), l.Now()
			l.remember(o)
			return nil
		}
	}
	// By the time of the request, not of the connection: what was seen before is not older than that.
	o.Begin = l.Now()
	s.do(ctx, &o)
	o.End = l.Now()
	l.remember(o)
	if o.Outcome != history.Acknowledged {
		s.close(ctx)
		return nil
	}
	return s
}

// Final reads what the database holds.
func (l *Load) Final(ctx context.Context) (history.Final, error) {
	final := history.Final{Lists: map[int][]int64{}, Registers: map[int]int64{}}
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return final, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var key int
	var items []int64
	rows, err := conn.Query(ctx, "select key, items from chaos_lists where items <> '{}'")
	if err != nil {
		return final, err
	}
	if _, err = pgx.ForEachRow(rows, []any{&key, &items}, func() error { final.Lists[key] = slices.Clone(items); return nil }); err != nil {
		return final, err
	}
	var value int64
	rows, err = conn.Query(ctx, "select key, value from chaos_registers where value <> 0")
	if err != nil {
		return final, err
	}
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error { final.Registers[key] = value; return nil })
	return final, err
}

// ports are those that a client's connection happens to have.
var ports = regexp.MustCompile(`:[0-9]+->`)

// Errors are the most frequent errors of operations, for people.
func Errors(operations []history.Operation) []string {
	counts := map[string]int{}
	for _, o := range operations {
		if o.Error != "" {
			counts[ports.ReplaceAllString(o.Error, "->")]++
		}
	}
	texts := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	for i, text := range texts {
		texts[i] = fmt.Sprintf("%d times: %s", counts[text], text)
	}
	return texts[:min(len(texts), 8)]
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
