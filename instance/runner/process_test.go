package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/runner"
)

// life is what an agent that is a process of its own is told.
type life struct {
	Dir, Name, Incarnation, API string
	Port                        int32
}

// startProcess starts the host's agent as a process of its own.
func (h *host) startProcess() *exec.Cmd {
	h.t.Helper()
	h.starts++
	api, err := net.Listen("unix", h.path("api"))
	if err != nil {
		h.t.Fatal(err)
	}
	server := rpc.NewServer()
	if err = server.RegisterName("API", &API{podKube{h.world, h.name}}); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		for {
			conn, closed := api.Accept()
			if closed != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	told, err := json.Marshal(life{
		Dir: h.dir, Name: h.name, Incarnation: fmt.Sprintf("start%d", h.starts), API: h.path("api"), Port: h.port,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "agent", string(told))
	cmd.Stdout, cmd.Stderr = h.output, h.output
	// Whoever is left of it must not keep the test from its end.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = api.Close()
	})
	return cmd
}

// live is the life of such an agent.
func live(told string) error {
	var l life
	if err := json.Unmarshal([]byte(told), &l); err != nil {
		return err
	}
	client, err := rpc.Dial("unix", l.API)
	if err != nil {
		return err
	}
	h := &host{dir: l.Dir, name: l.Name, port: l.Port}
	options := h.options(l.Incarnation, os.Stdout)
	if options.Probes, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	if options.Status, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	runner.New(options, remoteKube{client}, h.logger(os.Stdout)).Run(ctx)
	return nil
}

func (h *host) logger(out io.Writer) logr.Logger {
	return funcr.New(func(prefix, args string) {
		_, _ = fmt.Fprintf(out, "%s agent %s %s\n", time.Now().Format("15:04:05.000"), prefix, args)
	}, funcr.Options{})
}

// processStat is a process's state and what follows in /proc.
func processStat(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	return string(stat[bytes.LastIndexByte(stat, ')')+2:]), nil
}

// None is what a call has no need of.
type None struct{}

// API offers a podKube to another process.
type API struct{ podKube }

// Update is what UpdateLease is called with.
type Update struct {
	Lease    lease.Lease
	Duration time.Duration
}

// Text is what Publish is called with.
type Text struct{ Report, Role string }

// Config returns the configuration.
func (a *API) Config(_ None, config *string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	*config = a.config
	return nil
}

// Lease is podKube.Lease.
func (a *API) Lease(_ None, l *lease.Lease) (err error) {
	*l, err = a.podKube.Lease(context.Background())
	return err
}

// UpdateLease is podKube.UpdateLease.
func (a *API) UpdateLease(u Update, l *lease.Lease) (err error) {
	*l, err = a.podKube.UpdateLease(context.Background(), u.Lease, u.Duration)
	return err
}

// Primary is podKube.Primary.
func (a *API) Primary(_ None, e *agent.Endpoint) (err error) {
	*e, err = a.podKube.Primary(context.Background())
	return err
}

// Publish is podKube.Publish.
func (a *API) Publish(t Text, _ *None) error {
	return a.podKube.Publish(context.Background(), t.Report, t.Role)
}

// remoteKube is an API as an agent in another process has it.
type remoteKube struct{ client *rpc.Client }

func (k remoteKube) call(ctx context.Context, method string, args, reply any) error {
	call := k.client.Go("API."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if call.Error != nil && call.Error.Error() == kube.ErrConflict.Error() {
		return kube.ErrConflict
	}
	return call.Error
}

func (k remoteKube) WatchConfig(ctx context.Context, changed func(string)) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		var config string
		if err := k.call(ctx, "Config", None{}, &config); err == nil && config != last {
			last = config
			changed(config)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k remoteKube) Lease(ctx context.Context) (l lease.Lease, err error) {
	return l, k.call(ctx, "Lease", None{}, &l)
}

func (k remoteKube) UpdateLease(ctx context.Context, l lease.Lease, duration time.Duration) (w lease.Lease, err error) {
	return w, k.call(ctx, "UpdateLease", Update{l, duration}, &w)
}

func (k remoteKube) Primary(ctx context.Context) (e agent.Endpoint, err error) {
	return e, k.call(ctx, "Primary", None{}, &e)
}

func (remoteKube) Serve(context.Context, int32, bool, int32) error { return nil }

func (remoteKube) Ended(context.Context, string) (bool, error) { return false, nil }

func (remoteKube) Current(context.Context) error { return nil }

func (remoteKube) Unlabel(context.Context, string, int32) error { return nil }

func (k remoteKube) Publish(ctx context.Context, report, role string) error {
	return k.call(ctx, "Publish", Text{report, role}, &None{})
}
