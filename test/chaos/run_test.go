package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/chaos/history"
	"github.com/acme/pg-operator/test/chaos/load"
	"github.com/acme/pg-operator/test/chaos/table"
	"github.com/acme/pg-operator/test/chaos/watch"
	"github.com/acme/pg-operator/test/localcluster"
)

// modeRequired lets each commit wait for a replica: what is acknowledged is never lost. In the other mode, async, commits
// return before a replica has them.
const modeRequired = "required"

const (
	// steady is how many acknowledged writes show that clients can work.
	steady = 20
	// healTimeout bounds the time from a fault's end until all instances run again, beyond every goal.
	healTimeout = 90 * time.Second
	// staleLimit is how long a primary that lost its Lease may go on to answer reads: the Lease's duration.
	staleLimit = 10 * time.Second
)

// suite runs faults on clusters of one kind.
type suite struct {
	cluster   *localcluster.Cluster
	nodes     []string // empty: wherever there is room
	instances int32
	mode      string
}

func (s suite) name() string { return fmt.Sprintf("%d %s", s.instances, s.mode) }

// run tries one fault after the other on one cluster, or on a new one when the last fault broke it.
func (s suite) run(t *testing.T, chosen []fault, runs *[]table.Run) {
	var b *bed
	times := map[string]int{}
	for _, f := range chosen {
		if s.instances < f.needs || f.cuts && len(s.nodes) == 0 {
			continue
		}
		if b == nil {
			b = newBed(t, s)
		}
		healthy := t.Run(f.name, func(t *testing.T) {
			r := &trial{t: t, bed: b, fault: f, mode: s.mode, seed: seedOf(s.name(), f.name, times[f.name])}
			defer func() { *runs = append(*runs, r.result) }()
			r.run()
		})
		if times[f.name]++; !healthy {
			t.Logf("Again: make test-chaos SEED=%d INSTANCES=%d MODES=%s FAULTS=%s", *seed, s.instances, s.mode, f.name)
			b = nil
		}
	}
}

// seedOf is the seed of one run: it depends on the fault alone and not on those before it, so that it can be run again.
func seedOf(suite, fault string, time int) uint64 {
	hash := fnv.New64a()
	fmt.Fprint(hash, *seed, suite, fault, time)
	return hash.Sum64()
}

// trial is one run of a fault.
type trial struct {
	t     *testing.T
	bed   *bed
	fault fault
	mode  string
	seed  uint64

	load    *load.Load
	watcher *watch.Watcher
	result  table.Run
}

// run breaks something, waits until all is well again, and judges.
func (r *trial) run() {
	r.result = table.Run{Mode: fmt.Sprintf("%d %s", r.bed.instances, r.mode), Fault: r.fault.name}
	ctx := r.t.Context()
	primary := r.begin(ctx)
	told := r.followStatus()
	injected, began := r.load.Now(), time.Now()
	undo, err := r.fault.start(ctx, r.bed, primary)
	if undo != nil {
		// Also when the test ends early: the next fault needs the machine as it was.
		r.t.Cleanup(func() {
			late, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if undo != nil {
				_ = undo(late)
			}
		})
	}
	if err != nil {
		r.logSteps(ctx, began)
		r.fail(fmt.Errorf("start the fault: %w", err))
	}
	wait(ctx, r.fault.hold)
	if undo != nil {
		if err = undo(ctx); err != nil {
			r.fail(fmt.Errorf("end the fault: %w", err))
		}
		undo = nil
	}
	ended := time.Now()
	now, since, err := r.bed.awaitHealthy(ctx, healTimeout, r.watcher.Looks)
	r.result.Back = since.Sub(ended)
	if err != nil {
		r.problem("%v", err)
	} else {
		r.result.Moved = now != primary
		r.awaitWrites(ctx)
	}
	until := r.load.Now()
	r.load.Stop()
	r.watcher.Stop()
	r.logSteps(ctx, began)
	var failover *v1alpha1.FailoverRecord
	failover, r.result.Reason = told()
	r.result.Detected, r.result.Promoted = stages(failover, began)
	if v := r.judge(ctx, injected, until); failover != nil && failover.LostBytes != nil && *failover.LostBytes == 0 &&
		len(v.Timelines) == 2 && len(v.Lost) > 0 {
		r.problem("%d acknowledged writes are lost, and the status says that none is", len(v.Lost))
	}
	r.t.Logf("%+v", r.result)
}

// stages are when a failover's cause was noticed, and when the new primary took over, since the fault began; 0 if not known.
func stages(f *v1alpha1.FailoverRecord, began time.Time) (detected, promoted time.Duration) {
	if f == nil {
		return 0, 0
	}
	if f.DetectedTime != nil {
		detected = f.DetectedTime.Sub(began)
	}
	if f.PromotedTime != nil {
		promoted = f.PromotedTime.Sub(began)
	}
	return detected, promoted
}

// begin starts the clients and the watcher, and waits until they work. It returns the primary.
func (r *trial) begin(ctx context.Context) (primary string) {
	if _, _, err := r.bed.awaitHealthy(ctx, healTimeout, nil); err != nil {
		r.fail(err)
	}
	config, err := r.bed.config(ctx)
	if err != nil {
		r.fail(err)
	}
	if r.load, err = load.Start(ctx, config, load.Usual(r.seed)); err != nil {
		r.fail(err)
	}
	r.t.Cleanup(r.load.Stop)
	r.watcher, err = watch.Start(ctx, r.bed.cluster.Client, r.bed.key(string(r.bed.Cluster)), r.bed.names(), config, r.load.Now)
	if err != nil {
		r.fail(err)
	}
	r.t.Cleanup(r.watcher.Stop)
	if primary, _, err = r.bed.awaitHealthy(ctx, healTimeout, r.watcher.Looks); err != nil {
		r.fail(err)
	}
	r.awaitWrites(ctx)
	return primary
}

// awaitWrites waits until clients have written again.
func (r *trial) awaitWrites(ctx context.Context) {
	since := r.load.Now()
	_, err := localcluster.Wait(ctx, healTimeout, fmt.Sprintf("%d more writes", steady), func(context.Context) (bool, string) {
		writes, last := r.load.Acknowledged(since)
		return writes >= steady, fmt.Sprintf("%d writes; last error: %s", writes, last)
	})
	if err != nil {
		r.problem("%v", err)
	}
}

// fail ends the run.
func (r *trial) fail(err error) {
	r.t.Helper()
	r.problem("%v", err)
	r.t.FailNow()
}

func (r *trial) problem(format string, args ...any) {
	r.t.Helper()
	text := fmt.Sprintf(format, args...)
	r.t.Error(text)
	if r.result.Problem == "" {
		r.result.Problem = text
	}
}

// judge asserts safety always, and of time only what is far beyond every goal.
func (r *trial) judge(ctx context.Context, injected, until time.Duration) (v history.Verdict) {
	final, err := r.load.Final(ctx)
	if err != nil {
		r.problem("read the database after all: %v", err)
		return v
	}
	operations := r.load.Operations()
	v = history.Check(operations, final)
	acks := append(history.Acks(operations), r.watcher.Acks()...)
	outage, ended := history.Outage(operations, injected, until)
	r.result.Outage = outage
	r.result.Writes, r.result.Lost = v.Acknowledged, len(v.Lost)
	r.result.TwoWriters, r.result.Stale = history.TwoWriters(acks), v.StaleFor
	r.t.Logf("no write was acknowledged for %s, until %s after the fault began", outage, ended-injected)
	r.t.Logf("%d writes acknowledged, %d failed, %d unknown, of which %d were read and are gone; timelines %v; looks %v; terms %v",
		v.Acknowledged, v.Failed, v.Unknown, len(v.Vanished), v.Timelines, r.watcher.Looks(), r.watcher.Holders())
	for _, text := range load.Errors(operations) {
		r.t.Log(text)
	}
	for _, found := range slices.Concat(v.Wrong, v.Back, history.TermErrors(r.watcher.Holders())) {
		r.problem("%s", found)
	}
	if len(v.Lost) > 0 && (r.mode == modeRequired || len(v.Timelines) < 2) {
		r.problem("%d acknowledged writes are lost:\n%s", len(v.Lost), strings.Join(v.Lost, "\n"))
	}
	if r.result.TwoWriters > 0 {
		r.problem("two instances acknowledged writes for %s", r.result.TwoWriters)
	}
	if v.StaleFor > staleLimit {
		r.problem("reads were late by %s: %s", v.StaleFor, v.Stale[0])
	}
	if r.result.Outage > r.fault.outage {
		r.problem("no write was acknowledged for %s, want at most %s", r.result.Outage, r.fault.outage)
	}
	switch terms := history.Terms(r.watcher.Holders()); {
	case r.fault.stays && (r.result.Moved || terms > 1):
		r.problem("another term began, and need not have: %v", r.watcher.Holders())
	case r.fault.once && terms > 2:
		r.problem("%d terms began, want at most one: %v", terms-1, r.watcher.Holders())
	}
	if !r.result.Moved && r.fault.moves && r.bed.instances > 1 && r.result.Problem == "" {
		r.problem("the primary stayed the primary")
	}
	if len(acks) == len(history.Acks(operations)) {
		r.problem("the watcher saw no instance take writes, so it would not have seen two")
	}
	return v
}

// wait lets a fault last.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
