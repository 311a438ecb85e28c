package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

// starts counts what the next start has to take into account.
type starts struct {
	// failed in a row, crashed since the last quiet time.
	failed, crashed int
	// at is when the server last began to accept connections.
	at time.Time
}

const (
	// broken is how many starts in a row fail before the data is suspected.
	broken = 3
	// quiet is how long a server runs before earlier crashes are forgotten.
	quiet = time.Minute
	// silence is how long a replica may be without its primary before it asks why.
	silence = 3 * time.Second
)

// How often a server is observed: often while something is awaited of it.
const (
	observeSoon    = 50 * time.Millisecond
	observeSlow    = time.Second
	observeTimeout = 5 * time.Second
)

// launch makes a started postmaster the instance's, and watches it until it ends.
func (r *Runner) launch(ctx context.Context, p *pg.Process, replica bool, ending string) {
	r.mu.Lock()
	r.process, r.expected, r.kept = p, false, nil
	r.mu.Unlock()
	r.update(func(f *agent.Facts) {
		f.Server = agent.Server{Up: true, Replica: replica, LastError: ending}
		f.Provisioned = false
	})
	go func() {
		watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
		go r.watchServer(watch, p)
		<-p.Done()
		cancel()
		r.licence.ended(ctx, p)
		if r.ended(p) {
			r.inspect(ctx)
		}
	}()
}

// ended notes the end of a postmaster, and how soon the next may be started. It tells whether nobody wanted that end;
// then its data may be the reason, and has to be looked at.
func (r *Runner) ended(p *pg.Process) (unexpected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != p {
		return false
	}
	r.process = nil
	old, ending := r.facts.Server, p.Ending()
	r.facts.Server = agent.Server{LastError: ending}
	replicas := r.standbys
	r.observed, r.standbys = pg.Observation{}, standbys{}
	defer r.poke()
	if r.expected {
		r.facts.Server.LastError = ""
		return false
	}
	if !old.Replica {
		r.abandon(replicas, ending)
	}
	r.facts.Data.Known = false
	r.log.Info("PostgreSQL ended unexpectedly", "reason", ending)
	task := agent.TaskStartPrimary
	if old.Replica {
		task = agent.TaskStartReplica
	}
	if r.starts.at.IsZero() {
		if r.settingsFailed(ending) {
			return true
		}
		r.starts.failed++
		r.facts.Server.Broken = r.starts.failed >= broken
		r.fail(task, ending)
		return true
	}
	if time.Since(r.starts.at) > quiet {
		r.starts.crashed = 0
	}
	r.starts.at = time.Time{}
	r.starts.crashed++
	if r.starts.crashed > 1 {
		r.fail(task, ending)
	}
	return true
}

// watchServer keeps the facts about a running server.
func (r *Runner) watchServer(ctx context.Context, p *pg.Process) {
	w := serverWatch{runner: r, process: p, quietSince: time.Now(), poked: newBell(), health: newHealth(r.bounds)}
	defer func() { w.close(context.WithoutCancel(ctx)) }()
	go w.watchReceiver(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.poked:
		}
		timer.Reset(w.look(ctx))
	}
}

// serverWatch is the observation of one postmaster.
type serverWatch struct {
	runner  *Runner
	process *pg.Process
	conn    *pgx.Conn
	// quietSince is since when a replica has not been streaming; it is zero while it does.
	quietSince time.Time
	// receiver is the process that receives the log, since receiverSince; alive is the one that is watched, 0 for none.
	receiver      int
	receiverSince time.Time
	alive         atomic.Int64
	// received is how far the log had come at the last look.
	received postgres.LSN
	// health of a replica.
	health health
	// slotsAt is when the slots were last looked at.
	slotsAt time.Time
	// poked asks for a look now.
	poked bell
	// door is watched from the first session on.
	door    door
	watched bool
}

func (w *serverWatch) close(ctx context.Context) {
	if w.conn != nil {
		_ = w.conn.Close(ctx)
		w.conn = nil
	}
}

// look observes the server once, and says how soon to do so again.
func (w *serverWatch) look(ctx context.Context) time.Duration {
	if w.conn == nil && !w.process.Ready() {
		w.starting()
		return polling
	}
	watch := ctx
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	observed, err := w.observe(ctx)
	if err != nil {
		w.close(ctx)
		if ctx.Err() == nil || ctx.Err() == context.DeadlineExceeded {
			w.runner.notAccepting(w.process, err)
		}
		return observeSoon
	}
	if !w.watched {
		w.watched = true
		go w.door.watch(watch, w.knocking, w.knock, w.doorChanged)
	}
	if w.door.closed() != nil {
		return observeSlow
	}
	return w.learn(ctx, observed)
}

func (w *serverWatch) observe(ctx context.Context) (pg.Observation, error) {
	if w.conn == nil {
		conn, err := w.runner.server().Connect(ctx, postgres.RoleSuperuser)
		if err != nil {
			return pg.Observation{}, err
		}
		w.conn = conn
	}
	return pg.Observe(ctx, w.conn)
}

// starting is for a server that does not accept connections yet. A replica may wait for log that it will never get.
func (w *serverWatch) starting() {
	trouble := w.process.ReceiverTrouble()
	if time.Since(w.quietSince) < silence || !pg.Hopeless(trouble) {
		return
	}
	w.runner.updateServer(w.process, func(f *agent.Facts) { f.Server.Silent, f.Server.LastError = true, trouble })
}

// learn turns an observation into facts.
func (w *serverWatch) learn(ctx context.Context, o pg.Observation) time.Duration {
	streaming := w.streaming(o)
	if streaming && o.Received > w.received && w.runner.followsHolder() {
		w.runner.heardPrimary()
	}
	w.received = o.Received
	if streaming || !o.Recovering {
		w.quietSince = time.Time{}
	} else if w.quietSince.IsZero() {
		w.quietSince = time.Now()
	}
	quiet := !w.quietSince.IsZero()
	silent := quiet && time.Since(w.quietSince) > silence
	trouble := ""
	if quiet {
		trouble = w.process.ReceiverTrouble()
	}
	if silent && o.Recovering {
		if err := pg.EndBlockers(ctx, w.conn); err != nil {
			w.runner.log.Error(err, "Failed to end sessions that keep the replica from following")
		}
	}
	slotsDue := w.slotsDue(ctx, o, streaming)
	w.lookAtReplay(ctx, o)
	replicas, err := w.lookAtStandbys(ctx, o)
	if err != nil {
		w.runner.log.Error(err, "Failed to look at the replicas")
	}
	w.runner.updateServer(w.process, func(f *agent.Facts) {
		if w.door.closed() != nil || o.Recovering && w.runner.promoted == w.process {
			return // Or it was promoted since it was asked.
		}
		if !f.Server.Accepting {
			w.runner.accepted(ctx)
		}
		w.runner.observed, w.runner.standbys, w.runner.answered = o, replicas, time.Now()
		f.Server.Accepting, f.Server.Recovering, f.Server.Streaming = true, o.Recovering, streaming
		f.Server.Silent, f.Server.LastError, f.Server.Timeline = silent, trouble, o.Timeline
		f.Server.Hung, f.Server.Late = w.health.hung, w.health.late
		f.ProvisionDue, f.Abandon = f.ProvisionDue || slotsDue, ""
		if streaming && w.health.hung == "" {
			f.Diagnosis = w.runner.memory.diagnosis()
		}
		if streaming && w.health.hung == "" && w.health.late == "" {
			f.Repairs = agent.Repairs{}
		}
	})
	w.runner.synchronizer.poke()
	switch {
	case quiet && !silent:
		return observeSoon
	case streaming && !w.health.caught, !o.Recovering && w.gathers(replicas):
		return observeGathering
	}
	return observeSlow
}

// negotiation is how long a receiver may take before it streams or fails.
const negotiation = 300 * time.Millisecond

// streaming tells whether a replica receives its primary's log: it heard from it, or has been connected for so long
// that the primary simply has nothing to send.
func (w *serverWatch) streaming(o pg.Observation) bool {
	if o.Receiver != w.receiver {
		w.receiver, w.receiverSince = o.Receiver, time.Now()
		w.alive.Store(int64(o.Receiver))
	}
	return o.Receiver != 0 && !w.process.Ahead() && (o.Heard || time.Since(w.receiverSince) > negotiation)
}

// watchReceiver has the server and the Lease looked at as soon as the process that receives the log ends, because the
// primary may have ended. It goes on until ctx ends.
func (w *serverWatch) watchReceiver(ctx context.Context) {
	tick := time.NewTicker(observeSoon)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pid := w.alive.Load()
		if pid == 0 || !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			continue
		}
		if w.alive.CompareAndSwap(pid, 0) {
			w.poke()
			w.runner.keeper.poke()
		}
	}
}

// updateServer changes facts about a postmaster, if it still is the instance's. The main loop is only woken by news.
func (r *Runner) updateServer(p *pg.Process, change func(f *agent.Facts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != p {
		return
	}
	server, due := r.facts.Server, r.facts.ProvisionDue
	change(&r.facts)
	if r.facts.Server != server || r.facts.ProvisionDue != due {
		r.poke()
	}
}

// accepted notes that a start succeeded. The caller holds mu.
func (r *Runner) accepted(ctx context.Context) {
	r.starts.failed, r.starts.at = 0, time.Now()
	if r.facts.Failed.Task == agent.TaskStartPrimary || r.facts.Failed.Task == agent.TaskStartReplica {
		r.facts.Failed = agent.Failure{}
	}
	r.settingsGood()
	if len(r.settings.refusedHBA) == 0 {
		r.hbaTaken(r.settings.hba)
	} else {
		// A running server can say which line is wrong.
		r.settings.applied = application{}
	}
	go r.readInForce(context.WithoutCancel(ctx), r.process)
}

// readInForce notes what came of the settings that a server was started with. It has to succeed once: from then on
// clients cannot have their own words taken for the server's.
func (r *Runner) readInForce(ctx context.Context, p *pg.Process) {
	for {
		attempt, cancel := context.WithTimeout(ctx, observeTimeout)
		inForce, err := p.InForce(attempt)
		cancel()
		if err == nil {
			r.update(func(*agent.Facts) { r.settings.pending, r.settings.rejected = inForce.PendingRestart, inForce.Refused })
			return
		}
		select {
		case <-p.Done():
			return
		case <-time.After(observeSlow):
			r.log.Error(err, "Failed to read which settings are in force")
		}
	}
}

func (r *Runner) notAccepting(p *pg.Process, err error) {
	r.updateServer(p, func(f *agent.Facts) {
		f.Server.Accepting, f.Server.Streaming = false, false
		f.Server.LastError = "PostgreSQL does not accept connections: " + err.Error()
	})
}

// server describes the instance's PostgreSQL.
func (r *Runner) server() pg.Server {
	o := r.options
	return pg.Server{
		Volume: o.Volume, Programs: r.programs, RunDir: o.RunDir, Port: o.Port, Listen: o.Listen,
		Instance: o.Instance, TLS: o.ServerTLS, Log: o.Log,
	}
}
