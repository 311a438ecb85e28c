package operator

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/localcluster"
)

// operator is the real binary, running.
type operator struct {
	command *exec.Cmd
	log     string
	stopped bool
}

// build makes the operator's binary.
func build(b *testing.B, plane *controlplane.ControlPlane) (binary string) {
	b.Helper()
	binary = filepath.Join(b.TempDir(), "pg-operator")
	command := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, ".")
	command.Dir = plane.Repository
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return binary
}

// start runs the operator until the benchmark ends or stop is called.
func start(b *testing.B, plane *controlplane.ControlPlane, binary string) *operator {
	b.Helper()
	log, err := os.Create(filepath.Join(b.TempDir(), "operator.log"))
	if err != nil {
		b.Fatal(err)
	}
	o := &operator{log: log.Name()}
	o.command = exec.Command(binary, "manager", "--kubeconfig="+plane.Kubeconfig, "--webhooks=false", "--leader-elect=false",
		"--operator-image=registry.local/pg-operator:bench", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	o.command.Stdout, o.command.Stderr = log, log
	o.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err = o.command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { o.stop(b) })
	_, err = localcluster.Wait(b.Context(), time.Minute, "the operator works", func(context.Context) (bool, string) {
		text, _ := os.ReadFile(o.log)
		return strings.Contains(string(text), "Starting workers"), string(text)
	})
	if err != nil {
		b.Fatal(err)
	}
	return o
}

// stop ends the operator as Kubernetes does.
func (o *operator) stop(b *testing.B) {
	if o.stopped {
		return
	}
	o.stopped = true
	_ = o.command.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which Wait tells
	if ended := o.command.Wait(); ended != nil {
		text, _ := os.ReadFile(o.log)
		b.Errorf("operator: %v\n%s", ended, text[max(0, len(text)-4096):])
	}
}

// rss reads a line of /proc/PID/status, in MiB.
func (o *operator) rss(b *testing.B, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.command.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, field+":")
		if !found {
			continue
		}
		kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
		if err != nil {
			b.Fatal(err)
		}
		return kib / 1024
	}
	b.Fatalf("no %s in /proc/%d/status", field, o.command.Process.Pid)
	return 0
}
