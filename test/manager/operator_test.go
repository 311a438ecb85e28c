package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operator is one running process.
type operator struct {
	cmd                     *exec.Cmd
	logFile                 string
	webhook, probe, metrics string
	exited                  chan struct{}
}

// launch starts an operator whose certificate is in dir.
func launch(t *testing.T, dir string, flags ...string) *operator {
	t.Helper()
	o := &operator{
		logFile: filepath.Join(t.TempDir(), "operator.log"), exited: make(chan struct{}),
		webhook: address(t), probe: address(t), metrics: address(t),
	}
	_, port, err := net.SplitHostPort(o.webhook)
	if err != nil {
		t.Fatal(err)
	}
	o.cmd = exec.Command(binary, append([]string{
		"manager", "--kubeconfig=" + kubeconfig(t), "--operator-image=pg-operator:test", "--namespace=" + namespace,
		"--webhook-cert-dir=" + dir, "--webhook-port=" + port,
		"--health-probe-bind-address=" + o.probe, "--metrics-bind-address=" + o.metrics,
	}, flags...)...)
	log, err := os.Create(o.logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	o.cmd.Stdout, o.cmd.Stderr = log, log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = o.cmd.Wait() // The exit code is what counts.
		close(o.exited)
	}()
	t.Cleanup(func() {
		tunnel.remove(o.webhook)
		select {
		case <-o.exited:
		default:
			_ = o.cmd.Process.Kill()
			<-o.exited
		}
		if t.Failed() {
			t.Logf("log of operator %d:\n%s", o.cmd.Process.Pid, o.log())
		}
	})
	return o
}

// address is a free one on loopback. It lies below the ports that Linux gives to clients (from 32768), one of which
// could take it before the operator does.
func address(t *testing.T) string {
	t.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			defer listener.Close()
			return listener.Addr().String()
		}
	}
	t.Fatal("no free port in a hundred tries")
	return ""
}

func (o *operator) log() string {
	text, err := os.ReadFile(o.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// ready is nil when the operator says that it is.
func (o *operator) ready(ctx context.Context) error {
	select {
	case <-o.exited:
		return fmt.Errorf("the operator ended: %s", o.log())
	default:
	}
	code, body, err := get(ctx, "http://"+o.probe+"/readyz?verbose")
	if err == nil && code != 200 {
		err = errors.New(strings.TrimSpace(body))
	}
	return err
}

// serve waits until the operator is ready and then puts it behind the Service, as Kubernetes would.
func (o *operator) serve(t *testing.T) {
	t.Helper()
	eventually(t, o.ready)
	tunnel.add(o.webhook)
}

// stop takes the operator out of the Service and asks it to end; it returns the exit code.
func (o *operator) stop(t *testing.T) int {
	t.Helper()
	tunnel.remove(o.webhook)
	if err := o.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return o.exit(t, 35*time.Second)
}

// exit waits for the end and returns the exit code.
func (o *operator) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-o.exited:
	case <-time.After(within):
		t.Fatalf("the operator still runs after %s", within)
	}
	return o.cmd.ProcessState.ExitCode()
}

// lease is the one that operators compete for.
func lease(ctx context.Context) (*coordinationv1.Lease, error) {
	found := &coordinationv1.Lease{}
	err := plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "pg-operator"}, found)
	return found, err
}

// leads waits until somebody other than before holds the Lease, and returns who.
func leads(t *testing.T, before string) string {
	t.Helper()
	var holder string
	eventually(t, func(ctx context.Context) error {
		found, err := lease(ctx)
		if err != nil {
			return err
		}
		if found.Spec.HolderIdentity == nil || *found.Spec.HolderIdentity == "" || *found.Spec.HolderIdentity == before {
			return fmt.Errorf("nobody else than %q holds the Lease", before)
		}
		holder = *found.Spec.HolderIdentity
		return nil
	})
	return holder
}
