package chaos

import (
	"context"
	"time"
)

// fault is one way to break a database, and what has to come of it.
type fault struct {
	name string
	// right says what has to happen, for people.
	right string
	// start breaks something of the primary, or of another instance; the function that it returns mends it, nil if
	// nothing needs to be mended.
	start func(ctx context.Context, b *bed, primary string) (mend mend, err error)
	// hold is how long the fault lasts, outage how long clients may wait: loose, for a busy machine.
	hold, outage time.Duration
	// needs is the least number of instances. cuts tells that the instances have to be on nodes of their own.
	needs int32
	cuts  bool
	// stays tells that the primary stays the primary in its term, once that at most one term begins, moves that another
	// instance is the primary in the end if there is one.
	stays, once, moves bool
}

// mend ends a fault.
type mend = func(ctx context.Context) error

// faults are all that are tried.
var faults = []fault{
	{name: "kill-postmaster", right: "a replica takes over, or the only instance starts again", start: killPostmaster, outage: 30 * time.Second, needs: 1, moves: true},
	{name: "hang-postmaster", right: "a replica takes over from what answers nobody", start: hangPostmaster, hold: 20 * time.Second, outage: 30 * time.Second, needs: 2, moves: true},
	{name: "kill-backend", right: "PostgreSQL recovers in place", start: killBackend, outage: 30 * time.Second, needs: 1, stays: true},
	{name: "kill-agent", right: "the container ends with it; a replica takes over", start: killAgent, outage: 60 * time.Second, needs: 1},
	{name: "hang-agent", right: "the sentinel ends PostgreSQL in time; a replica takes over", start: hangAgent, hold: 30 * time.Second, outage: 60 * time.Second, needs: 2, moves: true},
	{name: "freeze", right: "a replica takes over; the thawed primary acknowledges nothing", start: freeze, hold: 30 * time.Second, outage: 60 * time.Second, needs: 2, moves: true},
	{name: "delete-pod", right: "the primary hands over before it stops", start: deletePod, outage: 60 * time.Second, needs: 1},
	{name: "force-delete", right: "as a killed agent", start: forceDelete, outage: 60 * time.Second, needs: 1},
	{name: "drain", right: "the primary hands over before it leaves", start: drain, hold: 15 * time.Second, outage: 60 * time.Second, needs: 2, cuts: true},
	{name: "kill-all", right: "one election among what is on disk", start: killAll, outage: 90 * time.Second, needs: 1},
	{name: "two-in-a-row", right: "a second failover after the first", start: twoInARow, outage: 60 * time.Second, needs: 3},
	{name: "wipe", right: "a replica takes over; the old primary is cloned, never made anew", start: wipe, outage: 60 * time.Second, needs: 2, moves: true},
	{name: "cut-api", right: "the peers answer, and the primary goes on", start: cutAPI, hold: 30 * time.Second, outage: 20 * time.Second, needs: 2, cuts: true},
	{name: "cut-api-one-way", right: "as cut off from the API server", start: cutAPIOneWay, hold: 30 * time.Second, outage: 20 * time.Second, needs: 2, cuts: true},
	{name: "cut-peers", right: "asynchronous: the primary goes on; required: a replica takes over", start: cutPeers, hold: 30 * time.Second, outage: 30 * time.Second, needs: 3, cuts: true},
	{name: "cut-out", right: "as cut off from the replicas", start: cutOut, hold: 30 * time.Second, outage: 30 * time.Second, needs: 3, cuts: true},
	{name: "cut-in", right: "as cut off from the replicas", start: cutIn, hold: 30 * time.Second, outage: 30 * time.Second, needs: 3, cuts: true},
	{name: "lossy", right: "the primary does not change back and forth", start: lossy, hold: 30 * time.Second, outage: 30 * time.Second, needs: 2, cuts: true, once: true},
	{name: "cut-all", right: "a replica takes over; the old primary is fenced in time", start: cutAll, hold: 30 * time.Second, outage: 30 * time.Second, needs: 3, cuts: true, moves: true},
	{name: "api-down", right: "nothing happens", start: stopAPI, hold: time.Minute, outage: 20 * time.Second, needs: 1, stays: true},
	{name: "api-errors", right: "nothing happens", start: failWrites, hold: 40 * time.Second, outage: 20 * time.Second, needs: 1, stays: true},
	{name: "api-slow", right: "nothing happens", start: slowWrites, hold: 40 * time.Second, outage: 20 * time.Second, needs: 1, stays: true},
	{name: "etcd-down", right: "nothing happens", start: stopEtcd, hold: 40 * time.Second, outage: 20 * time.Second, needs: 1, stays: true},
	{name: "operator-down", right: "as a killed postmaster", start: withoutOperator, hold: 10 * time.Second, outage: 30 * time.Second, needs: 1, moves: true},
	{name: "slow-replica", right: "other replicas confirm the commits", start: slowReplica, hold: 10 * time.Second, outage: 30 * time.Second, needs: 3, stays: true},
	{
		name: "flapping-replica", right: "the primary goes on; with a single replica, required waits for it",
		start: flapReplica, hold: 30 * time.Second, outage: 60 * time.Second, needs: 2, stays: true,
	},
	{name: "slow-disk", right: "commits are slow, and the primary goes on", start: slowDisk, hold: 15 * time.Second, outage: 30 * time.Second, needs: 1, stays: true},
	{name: "full-primary", right: "the condition says so; no write is lost, and writes go on when there is room", start: fullPrimary, hold: 15 * time.Second, outage: 105 * time.Second, needs: 1},
	{name: "full-replica", right: "the primary goes on", start: fullReplica, hold: 15 * time.Second, outage: 30 * time.Second, needs: 3, stays: true},
	{name: "broken-disk", right: "a replica takes over; the old primary comes back on what its disk has", start: breakDisk, hold: 15 * time.Second, outage: 60 * time.Second, needs: 2, moves: true},
	{name: "switchover", right: "the other instance is the primary within a second or so", start: switchover, outage: 30 * time.Second, needs: 2, moves: true},
}
