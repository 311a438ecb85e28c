// Package watch looks at a database from the side while its clients work: at
// who holds its Lease, and, on every instance directly, at whether it takes
// writes.
package watch

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/chaos/history"
	"github.com/acme/pg-operator/test/chaos/host"
	"github.com/acme/pg-operator/test/chaos/load"
)

const (
	// Every is the time between two looks at an instance.
	Every = 40 * time.Millisecond
	// answerTimeout ends a look: at an instance that does not answer, or whose commit waits.
	answerTimeout = time.Second
	// podsEvery is the time between two looks at where the pods are.
	podsEvery = 200 * time.Millisecond
)

// Watcher looks until it is stopped.
type Watcher struct {
	client  client.WithWatch
	cluster types.NamespacedName
	config  *pgx.ConnConfig
	now     func() time.Duration
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	pods    map[string]place
	looks   map[string]int
	acks    []history.Ack
	holders []history.Holder
}

// place is where a pod runs.
type place struct{ node, ip string }

// Start begins to look at the instances of a cluster as its application, with config, by the clock now.
func Start(ctx context.Context, c client.WithWatch, cluster types.NamespacedName, instances []string, config *pgx.ConnConfig,
	now func() time.Duration,
) (*Watcher, error) {
	w := &Watcher{client: c, cluster: cluster, config: config, now: now, pods: map[string]place{}, looks: map[string]int{}}
	if err := w.prepare(ctx, instances); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	w.findPods(ctx)
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.workers.Go(func() { repeat(ctx, podsEvery, func() { w.findPods(ctx) }) })
	w.workers.Go(func() { repeat(ctx, time.Second, func() { w.followLease(ctx) }) })
	for _, instance := range instances {
		w.workers.Go(func() { w.look(ctx, instance) })
	}
	return w, nil
}

// Stop ends the looking. It may be called more than once.
func (w *Watcher) Stop() {
	w.stop()
	w.workers.Wait()
}

// Acks are the writes that instances acknowledged to the watcher.
func (w *Watcher) Acks() []history.Ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acks)
}

// Looks counts the looks at instances that were answered: writes of a primary, and queries of replicas.
func (w *Watcher) Looks() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.looks)
}

// Holders of the Lease, one after the other.
func (w *Watcher) Holders() []history.Holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.holders)
}

func (w *Watcher) prepare(ctx context.Context, instances []string) error {
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, "create table if not exists chaos_looks (instance text primary key, looks bigint not null default 0)")
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "insert into chaos_looks select unnest($1::text[]) on conflict do nothing", instances)
	return err
}

func (w *Watcher) findPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	list := &corev1.PodList{}
	labels := client.MatchingLabels(naming.Cluster(w.cluster.Name).SelectorLabels())
	if err := w.client.List(ctx, list, client.InNamespace(w.cluster.Namespace), labels); err != nil {
		return // the pods are where they were, as far as is known
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range list.Items {
		if pod.Status.PodIP != "" {
			w.pods[pod.Name] = place{pod.Spec.NodeName, pod.Status.PodIP}
		}
	}
}

// followLease notes every change of holder, until the connection ends.
func (w *Watcher) followLease(ctx context.Context) {
	key := client.MatchingFields{"metadata.name": naming.Cluster(w.cluster.Name).Lease()}
	events, err := w.client.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(w.cluster.Namespace), key)
	if err != nil {
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok || lease.Spec.LeaseTransitions == nil {
			continue
		}
		holder := history.Holder{Term: *lease.Spec.LeaseTransitions}
		if lease.Spec.HolderIdentity != nil {
			holder.Identity = *lease.Spec.HolderIdentity
		}
		w.mu.Lock()
		if len(w.holders) == 0 || w.holders[len(w.holders)-1] != holder {
			w.holders = append(w.holders, holder)
		}
		w.mu.Unlock()
	}
}

// session is a connection to an instance's pod.
type session struct {
	conn     *pgx.Conn
	at       place
	doubtful bool // a commit did not wait for its replicas
}

const writeSQL = "update chaos_looks set looks = looks + 1 where instance = $1 " +
	"returning pg_walfile_name(pg_current_wal_insert_lsn()), host(inet_server_addr())"

// look writes on one instance, again and again, over a connection that nothing but its end can part from it.
func (w *Watcher) look(ctx context.Context, instance string) {
	var s *session
	repeat(ctx, Every, func() { s = w.lookOnce(ctx, s, instance) })
	s.end(ctx)
}

// lookOnce writes over the session, or over a new one where there is none or the pod is elsewhere; it returns the
// session for the next time, nothing if that needs a new one.
func (w *Watcher) lookOnce(ctx context.Context, s *session, instance string) *session {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	w.mu.Lock()
	at := w.pods[instance]
	w.mu.Unlock()
	if s != nil && s.at != at {
		s.end(ctx)
		s = nil
	}
	if s == nil {
		var err error
		if s, err = w.connect(ctx, at); err != nil {
			return nil
		}
	}
	if !w.write(ctx, s, instance) {
		s.end(ctx)
		return nil
	}
	return s
}

// connect reaches the instance's pod from the node that it runs on.
func (w *Watcher) connect(ctx context.Context, at place) (*session, error) {
	config := w.config.Copy()
	config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return host.DialFrom(ctx, at.node, net.JoinHostPort(at.ip, strconv.Itoa(int(naming.PortPostgres))))
	}
	s := &session{at: at}
	var err error
	s.conn, err = pgx.ConnectConfig(ctx, load.Careful(config, func() { s.doubtful = true }))
	return s, err
}

// write tries a write on a primary, and tells whether the connection can be used again.
func (w *Watcher) write(ctx context.Context, s *session, instance string) bool {
	var replica bool
	err := s.conn.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&replica)
	ack := history.Ack{Begin: w.now()}
	var file string
	if err == nil && !replica {
		err = s.conn.QueryRow(ctx, writeSQL, instance).Scan(&file, &ack.Server)
	}
	ack.End = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return !s.conn.IsClosed()
	}
	w.looks[instance]++
	if !replica && !s.doubtful {
		ack.Timeline = load.Timeline(file)
		w.acks = append(w.acks, ack)
	}
	return !s.doubtful
}

func (s *session) end(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 200*time.Millisecond)
	defer cancel()
	_ = s.conn.Close(ctx) // the server notices the end of the connection anyway
}

// repeat does something at a steady pace until the context ends.
func repeat(ctx context.Context, every time.Duration, do func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
