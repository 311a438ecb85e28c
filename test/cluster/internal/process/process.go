// Package process starts the cluster's programs as processes of their own
// session, remembers them in pid files, and ends exactly those.
package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// nameEnv tells the processes of one cluster apart; see layout.MarkerEnv.
const nameEnv = layout.MarkerEnv + "_PROCESS"

// Spec says what to run.
type Spec struct {
	Name string
	// Args holds the program's path and its arguments.
	Args []string
	// Namespace is the path of the network namespace; empty means the host's.
	Namespace string
	// Env is added to a minimal environment.
	Env []string
	// Files are configuration files: a change of their content restarts the
	// process, like a change of Args or of the program itself.
	Files []string
}

// Table is the set of processes of one cluster.
type Table struct {
	// Pids and Logs are the directories of pid files and logs.
	Pids, Logs string

	mu     sync.Mutex
	exited map[string]chan struct{}
}

// NewTable uses the directories pids and logs under a cluster's state.
func NewTable(cluster layout.Cluster) *Table {
	return &Table{Pids: cluster.Path("pids"), Logs: cluster.Path("logs"), exited: map[string]chan struct{}{}}
}

// Ensure makes the process run as specified. It reports whether it had to be
// started; one that runs with other arguments, configuration or program is
// ended first.
func (t *Table) Ensure(ctx context.Context, spec Spec) (started bool, err error) {
	hash, err := spec.hash()
	if err != nil {
		return false, fmt.Errorf("%s: %w", spec.Name, err)
	}
	record, known, err := readRecord(t.pidFile(spec.Name))
	if err != nil {
		return false, err
	}
	if known && record.Alive() {
		if record.Spec == hash {
			return false, nil
		}
		if err := t.Stop(ctx, spec.Name, 10*time.Second); err != nil {
			return false, err
		}
	}
	for _, orphan := range orphans(spec.Name, spec.Args[0]) {
		if err := end(ctx, orphan, 10*time.Second); err != nil {
			return false, err
		}
	}
	return true, t.start(spec, hash)
}

func (t *Table) start(spec Spec, hash string) error {
	for _, dir := range []string{t.Pids, t.Logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(t.Log(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := spec.Args
	if spec.Namespace != "" {
		// nsenter becomes the program, so the pid is the program's; ip netns
		// exec would also remount /sys, which hides the cgroups.
		args = append([]string{"nsenter", "--net=" + spec.Namespace, "--"}, args...)
	}
	command := exec.Command(args[0], args[1:]...)
	command.Stdout, command.Stderr = log, log
	command.Dir = "/"
	command.Env = append(environment(), nameEnv+"="+spec.Name, layout.MarkerEnv+"="+layout.StateDir)
	command.Env = append(command.Env, spec.Env...)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A file that the caller left open for us, such as the lock of flock(1),
	// must not stay open, and locked, for as long as the cluster runs.
	if err = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep open files from %s: %w", spec.Name, err)
	}
	if err = command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", spec.Name, err)
	}
	gone := make(chan struct{})
	t.mu.Lock()
	t.exited[spec.Name] = gone
	t.mu.Unlock()
	record, err := newRecord(spec.Name, command.Process.Pid, hash)
	if err == nil {
		err = record.write(t.pidFile(spec.Name))
	}
	go func() {
		_ = command.Wait() // the log says why; Exited tells that
		close(gone)
	}()
	return err
}

// environment is deliberately small: what a user's shell exports must not
// change how the cluster behaves.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}

// Exited is closed when a process that this program started has ended, and nil
// for one that ran already.
func (t *Table) Exited(name string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exited[name]
}

// Stop ends a process: SIGTERM, and SIGKILL after the grace.
func (t *Table) Stop(ctx context.Context, name string, grace time.Duration) error {
	record, known, err := readRecord(t.pidFile(name))
	if err != nil || !known {
		return err
	}
	if err := end(ctx, record, grace); err != nil {
		return err
	}
	return os.Remove(t.pidFile(name))
}

// Get returns the record of a process.
func (t *Table) Get(name string) (Record, bool) {
	record, known, err := readRecord(t.pidFile(name))
	return record, known && err == nil
}

// List returns the recorded processes by name, those that have died too.
func (t *Table) List() ([]Record, error) {
	entries, err := os.ReadDir(t.Pids)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".pid") {
			continue
		}
		record, known, err := readRecord(filepath.Join(t.Pids, entry.Name()))
		if err != nil {
			return nil, err
		}
		if known {
			records = append(records, record)
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

// Log is the path of a process's log.
func (t *Table) Log(name string) string { return filepath.Join(t.Logs, name+".log") }

func (t *Table) pidFile(name string) string { return filepath.Join(t.Pids, name+".pid") }

// end ends a process and waits until it is gone.
func end(ctx context.Context, record Record, grace time.Duration) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, 10 * time.Second}} {
		if step.wait <= 0 {
			continue
		}
		if err := record.Signal(step.signal); err != nil {
			return err
		}
		if gone, err := waitGone(ctx, record, step.wait); gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %s (pid %d) is still there 10s after SIGKILL", record.Name, record.PID)
}

func waitGone(ctx context.Context, record Record, limit time.Duration) (bool, error) {
	deadline := time.Now().Add(limit)
	for record.Alive() {
		if time.Now().After(deadline) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true, nil
}

// hash identifies the program, its arguments and its configuration.
func (s Spec) hash() (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q\n", s.Args, s.Namespace, s.Env)
	program, err := exec.LookPath(s.Args[0])
	if err != nil {
		return "", err
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, info.Size(), info.ModTime().UnixNano())
	for _, file := range s.Files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, file, len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
