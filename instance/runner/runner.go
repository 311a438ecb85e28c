// Package runner runs an agent: it gathers facts, has package agent decide,
// and carries out what it decided.
package runner

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/peer"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/instance/server"
	"github.com/acme/pg-operator/postgres"
)

// Kube is what an agent needs of the API server.
type Kube interface {
	// WatchConfig calls changed with the configuration's text, now and at each change, until ctx ends.
	WatchConfig(ctx context.Context, changed func(text string))
	// Lease reads the Lease; UpdateLease writes it if nobody else did (kube.ErrConflict). kube.ErrNoLease: it is gone.
	Lease(ctx context.Context) (lease.Lease, error)
	UpdateLease(ctx context.Context, l lease.Lease, duration time.Duration) (lease.Lease, error)
	// Primary is where the -rw Service leads; Serve leads it here.
	Primary(ctx context.Context) (agent.Endpoint, error)
	Serve(ctx context.Context, port int32, ready bool, term int32) error
	// Ended tells whether the incarnation that holds the Lease is known to have ended with all its processes.
	Ended(ctx context.Context, holder string) (bool, error)
	// Current fails if the agent's pod is gone, or was replaced by another one of its name (kube.ErrReplaced).
	Current(ctx context.Context) error
	// Publish writes the report and the label of the role onto the agent's own pod.
	Publish(ctx context.Context, report, role string) error
	// Unlabel takes the label of the primary off another instance's pod, unless that wrote it in the term or later.
	Unlabel(ctx context.Context, instance string, term int32) error
}

// Options are where an agent finds things.
type Options struct {
	Cluster             naming.Cluster
	Instance, Namespace string
	// Volume with the data, RunDir for the Unix socket.
	Volume pg.Volume
	RunDir string
	// Listen and Port are PostgreSQL's addresses and port.
	Listen string
	Port   int32
	// ServerTLS and ClientTLS are the instance's certificates.
	ServerTLS, ClientTLS pg.Keys
	// SuperuserPassword and AppPassword are files with passwords.
	SuperuserPassword, AppPassword string
	// Sentinel is the command of the program that ends PostgreSQL when the agent cannot (package fence).
	Sentinel []string
	// ShutdownTimeout bounds a clean shutdown of PostgreSQL.
	ShutdownTimeout time.Duration
	// Incarnation is random per start of the agent; AgentVersion its program's version.
	Incarnation, AgentVersion string
	// Log is where PostgreSQL's log goes.
	Log io.Writer
	// Probes and Status are where the agent answers.
	Probes, Status net.Listener
	// PeerAddress is where another instance's agent answers, as host:port.
	PeerAddress func(instance string) string
}

// Runner is a running agent.
type Runner struct {
	options Options
	kube    Kube
	log     logr.Logger

	keeper    *keeper
	licence   *licence
	scout     *scout
	publisher *publisher
	// peers are the other agents; view is what is known of the Lease and of its holder, to vote by.
	peers *peer.Client
	view  view
	// voting is held by the one candidate that is being answered.
	voting chan struct{}
	// synchronizer keeps what commits wait for.
	synchronizer *synchronizer

	// wake asks the main loop to look at the facts again.
	wake bell
	// looked is when the main loop last did, in Unix nanoseconds.
	looked atomic.Int64

	mu       sync.Mutex
	facts    agent.Facts
	decision agent.Decision
	memory   memory
	// recalled is the configuration that an earlier agent had.
	recalled *contract.Config
	locked   bool
	// giveBack gives the volume back.
	giveBack func()
	programs pg.Programs
	process  *pg.Process
	// promoted is the postmaster that was started as a replica's, and made the primary's.
	promoted *pg.Process
	// expected: the process is being stopped on purpose.
	expected bool
	// bounds of a replica's health.
	bounds bounds
	// waiting and progress say what an election waits for; freeSince is since when nobody holds the Lease.
	waiting, progress string
	freeSince         time.Time
	// wait is what was last reported of waiting.
	wait wait
	// dead is an incarnation that ended while it held the Lease.
	dead string
	// promotedAt is when PostgreSQL took writes in the term promotedIn, which was won in an election.
	promotedIn int32
	promotedAt time.Time
	// observed is what the server last said of itself.
	observed pg.Observation
	// answered is when it last did.
	answered time.Time
	// standbys are the replicas that a primary last had.
	standbys standbys
	// lastWritten is how far a primary that ended had written its log when it was last looked at.
	lastWritten postgres.LSN
	// kept is from where on the primary keeps its log for each instance, as this primary, or this replica's, last said at
	// keptAt; nil before.
	kept   map[string]postgres.LSN
	keptAt time.Time
	// quorum is what commits are to wait for; as the primary's it is that of quorumTerm.
	quorum     lease.Quorum
	quorumTerm int32
	// renewed is when the last write of the Lease that succeeded was begun.
	renewed time.Time
	// orderProblem is why an order to hand over is not carried out yet.
	orderProblem string
	settings     settings
	// cancelTask ends the running task.
	cancelTask context.CancelFunc
	starts     starts

	// begun is when the agent started.
	begun time.Time
	// unsaved asks for the memory to be written, saving guards its file.
	unsaved bell
	saving  sync.Mutex
	// keys guards the private copies of certificates.
	keys sync.Mutex
	// overriding guards the file that PostgreSQL reads last.
	overriding sync.Mutex
	// promises are the last terms from which other members promised never to stream again.
	promises map[string]int32
	// hinted is when the Lease was last looked at because a peer said so; hinting: it is about to be.
	hinted  time.Time
	hinting bool
}

// New makes an agent.
func New(options Options, kube Kube, log logr.Logger) *Runner {
	r := &Runner{
		options: options, kube: kube, log: log, wake: newBell(), unsaved: newBell(),
		voting: make(chan struct{}, 1), promises: map[string]int32{}, begun: time.Now(),
		bounds: bounds{hungLooks: hungLooks, maxAge: maxAge},
	}
	r.facts.Self, r.facts.Incarnation = options.Instance, options.Incarnation
	r.keeper = newKeeper(r)
	r.licence = newLicence(r)
	r.scout = newScout(r)
	r.publisher = newPublisher(r)
	r.peers = peer.New(peer.Options{
		Identity: (&pg.Loaded{Keys: options.ClientTLS}).Load, Address: options.PeerAddress,
		ServerName: func(instance string) string { return options.Cluster.InstanceHost(instance, options.Namespace) },
	})
	r.synchronizer = newSynchronizer(r)
	return r
}

// heartbeat is how often the main loop looks at the facts without being asked; liveness depends on it.
const heartbeat = time.Second

// Run runs the agent until ctx ends and PostgreSQL has stopped.
func (r *Runner) Run(ctx context.Context) {
	// The agent outlives the request to stop it.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	failed := make(chan error, 2)
	for _, part := range []func(){
		func() { r.kube.WatchConfig(work, r.configChanged) },
		func() { r.keeper.run(work) },
		func() { r.licence.run(work) },
		func() { r.licence.guard.Run(work) },
		func() { r.watchHolder(work) },
		func() { r.scout.run(work) },
		func() { r.publisher.run(work) },
		func() { r.synchronizer.run(work) },
		func() { r.watchFiles(work) },
		func() { r.prepare(work) },
		func() { r.keepMemory(work) },
		func() { failed <- server.ServeProbes(work, r.options.Probes, r) },
		func() { r.listenToPrimary(work) },
		func() {
			failed <- server.ServePeers(work, r.options.Status, (&pg.Loaded{Keys: r.options.ServerTLS}).Load, r)
		},
	} {
		group.Go(part)
	}
	r.loop(work, ctx.Done(), failed)
	flush, cancelFlush := context.WithTimeout(work, time.Second)
	r.publisher.flush(flush)
	cancelFlush()
	cancel()
	group.Wait()
	r.peers.Close()
	r.unlock()
}

func (r *Runner) loop(ctx context.Context, stop <-chan struct{}, failed <-chan error) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		r.looked.Store(time.Now().UnixNano())
		if r.step(ctx) {
			return
		}
		select {
		case <-r.wake:
		case <-tick.C:
		case <-stop:
			stop = nil
			r.log.Info("Stopping")
			r.update(func(f *agent.Facts) { f.Stopping = true })
		case err := <-failed:
			// Without probes the kubelet would restart the container anyway; do it in good order.
			r.log.Error(err, "Failed to serve probes or status")
			r.update(func(f *agent.Facts) { f.Stopping = true })
		}
	}
}

// step decides once and carries it out. It returns true when the agent is done.
func (r *Runner) step(ctx context.Context) bool {
	r.mu.Lock()
	r.refresh()
	d := agent.Decide(r.facts)
	changed := d.State != r.decision.State || d.Message != r.decision.Message
	if d.Follow != r.decision.Follow {
		r.facts.Diagnosis = r.memory.diagnosis()
		r.poke() // What has to be configured depends on it.
	}
	r.decision = d
	if d.Cancel && r.cancelTask != nil {
		r.cancelTask()
	}
	done := d.Do == agent.TaskExit
	if d.Do != agent.TaskNone && !done {
		r.begin(ctx, d)
	}
	report, label := r.report(d), label(d)
	r.mu.Unlock()
	if changed {
		r.log.Info("State changed", "state", d.State, "message", d.Message, "task", d.Do)
	}
	r.publisher.want(report, label, d)
	r.scout.poke()
	return done
}

// update changes facts and has the main loop look at them.
func (r *Runner) update(change func(f *agent.Facts)) {
	r.mu.Lock()
	change(&r.facts)
	r.mu.Unlock()
	r.poke()
}

func (r *Runner) poke() { r.wake.ring() }

// refresh computes the facts that follow from others. The caller holds mu.
func (r *Runner) refresh() {
	f := &r.facts
	if f.Config == nil {
		return
	}
	r.refreshQuorum()
	f.Configured = r.settings.applied == r.wanted() && r.settings.detached == r.detachedFrom(r.settings.applied.upstream)
	f.Challenge = r.view.challenge(r.elapsed())
	f.Challenge.Progress = r.progress
	f.Unanswered = !r.keeper.answers()
	f.Unclaimed = f.LeaseKnown && f.Lease.Holder == "" && time.Since(r.freeSince) > unclaimed
	f.RestartOrder = nextOrder(f.Config.Orders, f.Self, r.memory.LastOrder)
	order, problem := r.switchover()
	if f.SwitchoverOrder, r.orderProblem = order.ID, problem; problem != "" {
		f.SwitchoverOrder = ""
	}
}

// nextOrder is the newest order to an instance after the last one it carried out; several restarts become one.
func nextOrder(orders []contract.Order, instance, last string) string {
	next := ""
	for _, order := range orders {
		if order.Instance != instance || order.Kind != contract.OrderRestart {
			continue
		}
		if order.ID == last {
			next = ""
			continue
		}
		next = order.ID
	}
	return next
}

func label(d agent.Decision) string {
	switch {
	case !d.Label:
		return ""
	case d.Role == contract.RolePrimary:
		return naming.RolePrimary
	default:
		return naming.RoleReplica
	}
}

// stuck is after how long without a look at the facts the main loop is taken for stuck.
const stuck = 15 * time.Second

// Started tells whether the agent works.
func (r *Runner) Started() bool { return r.looked.Load() != 0 }

// Live tells whether the main loop goes on; neither PostgreSQL nor the API server matters.
func (r *Runner) Live() bool { return time.Since(time.Unix(0, r.looked.Load())) < stuck }

// Ready tells whether the instance takes part in the cluster.
func (r *Runner) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decision.State == contract.StateRunning && r.decision.Label
}
