package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/fence"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
)

// world stands for the API server: the objects of one cluster, in memory.
type world struct {
	mu      sync.Mutex
	changed chan struct{}
	config  string
	lease   lease.Lease
	version int
	primary agent.Endpoint
	pods    map[string]podView
	// agents are where the agents answer their peers.
	agents map[string]string
	// cut makes the calls of an instance and to its agent fail.
	cut map[string]bool
	// ended is an incarnation that the kubelet says has ended.
	ended string
	// down makes every call fail; refused counts the writes of the Lease that it refused.
	down    bool
	refused int
	// mute does what is asked, and lets nobody know.
	mute bool
	// renewal is when the Lease was last written, or first since mute was set, by fence.Now.
	renewal time.Duration
	// terms are the holders of each term, to prove that there is one.
	terms map[int32]string
}

type podView struct {
	report contract.Report
	label  string
	writes int
}

var errDown = errors.New("the API server is down")

func newWorld() *world {
	return &world{changed: make(chan struct{}), pods: map[string]podView{}, agents: map[string]string{}, cut: map[string]bool{}, terms: map[int32]string{}}
}

// do changes the world and wakes all who watch it.
func (w *world) do(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) setConfig(t *testing.T, c contract.Config) {
	t.Helper()
	content, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	w.do(func() { w.config = string(content) })
}

func (w *world) pod(name string) podView {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[name]
}

func (w *world) renewalNow() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewal
}

// agentAddress is where an instance's agent answers, or nowhere.
func (w *world) agentAddress(instance string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if address := w.agents[instance]; address != "" && !w.cut[instance] {
		return address
	}
	return "127.0.0.1:1"
}

func (w *world) leaseNow() lease.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lease
}

// await waits until the world is as wanted; it is looked at after each change.
func (w *world) await(t *testing.T, within time.Duration, what string, wanted func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		w.mu.Lock()
		done, changed := wanted(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Fatalf("waited %s for: %s\npods: %+v\nlease: %+v\nprimary: %+v", within, what, w.pods, w.lease, w.primary)
		}
	}
}

// isDown tells whether the API server answers the instance. The caller holds mu.
func (k podKube) isDown() bool { return k.down || k.cut[k.name] }

// podKube is the world as one instance's agent sees it.
type podKube struct {
	*world
	name string
}

func (k podKube) WatchConfig(ctx context.Context, changed func(string)) {
	last := ""
	for {
		k.mu.Lock()
		config, next := k.config, k.changed
		if k.isDown() {
			config = last
		}
		k.mu.Unlock()
		if config != last {
			last = config
			changed(config)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

func (k podKube) Lease(context.Context) (lease.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isDown() {
		return lease.Lease{}, errDown
	}
	return k.lease, nil
}

func (k podKube) UpdateLease(_ context.Context, l lease.Lease, duration time.Duration) (lease.Lease, error) {
	var err error
	k.do(func() {
		switch {
		case k.isDown():
			k.refused++
			err = errDown
		case l.Version != k.lease.Version:
			err = kube.ErrConflict
		default:
			k.version++
			l.Version, l.Duration = strconv.Itoa(k.version), duration
			k.lease = l
			k.terms[l.Term] = l.Holder
			if !k.mute || k.renewal == 0 {
				k.renewal = fence.Now()
			}
			if k.mute {
				err = errDown
			}
		}
	})
	return l, err
}

func (k podKube) Ended(_ context.Context, holder string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isDown() {
		return false, errDown
	}
	return holder != "" && k.ended == holder, nil
}

func (k podKube) Current(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isDown() {
		return errDown
	}
	return nil
}

func (k podKube) Primary(context.Context) (agent.Endpoint, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isDown() {
		return agent.Endpoint{}, errDown
	}
	return k.primary, nil
}

func (k podKube) Serve(_ context.Context, port int32, ready bool, _ int32) error {
	var err error
	k.do(func() {
		switch {
		case k.isDown():
			err = errDown
		case ready:
			k.primary = agent.Endpoint{Instance: k.name, Address: "127.0.0.1", Port: port}
		default:
			k.primary = agent.Endpoint{}
		}
	})
	return err
}

func (k podKube) Publish(_ context.Context, report, role string) error {
	var r contract.Report
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		return err
	}
	var err error
	k.do(func() {
		if k.isDown() {
			err = errDown
			return
		}
		k.pods[k.name] = podView{report: r, label: role, writes: k.pods[k.name].writes + 1}
	})
	return err
}

func (k podKube) Unlabel(_ context.Context, instance string, term int32) error {
	var err error
	k.do(func() {
		p := k.pods[instance]
		switch {
		case k.isDown():
			err = errDown
		case p.label == primaryRole && p.report.Term < term:
			p.label = ""
			k.pods[instance] = p
		}
	})
	return err
}

// labelled are the instances with the primary's label. The caller holds mu.
func (w *world) labelled() (names []string) {
	for name, p := range w.pods {
		if p.label == primaryRole {
			names = append(names, name)
		}
	}
	return names
}

// running tells whether an instance takes part in a role. The caller holds mu.
func (w *world) running(name, role string) bool {
	p := w.pods[name]
	return p.report.State == contract.StateRunning && p.label == role
}

func (w *world) runs(name, role string) func() bool {
	return func() bool { return w.running(name, role) }
}

const (
	primaryRole = naming.RolePrimary
	replicaRole = naming.RoleReplica
)
