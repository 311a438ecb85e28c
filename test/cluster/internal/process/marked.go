package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// Marked finds the running processes that carry the cluster's marker in their
// environment: those it started, and what they started in turn (containerd's
// shims). Containers do not inherit it.
func Marked() []Record {
	return marked(func([]byte, []byte) bool { return true })
}

// orphans finds processes started under this name whose pid file was lost.
// Shims carry containerd's name too, so the program must match as well.
func orphans(name, program string) []Record {
	variable := []byte(nameEnv + "=" + name)
	return marked(func(environ, cmdline []byte) bool {
		first, _, _ := bytes.Cut(cmdline, []byte{0})
		return string(first) == program && hasVariable(environ, variable)
	})
}

func marked(match func(environ, cmdline []byte) bool) []Record {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	want := []byte(layout.MarkerEnv + "=" + layout.StateDir)
	var found []Record
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !hasVariable(environ, want) {
			continue
		}
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !match(environ, cmdline) {
			continue
		}
		record, err := newRecord(fmt.Sprintf("pid-%d", pid), pid, "")
		if err == nil && record.Alive() {
			found = append(found, record)
		}
	}
	return found
}

func hasVariable(environ, want []byte) bool {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(variable, want) {
			return true
		}
	}
	return false
}

// KillAll ends processes at once and waits until all are gone.
func KillAll(ctx context.Context, records []Record) error {
	for _, record := range records {
		if err := record.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for _, record := range records {
		gone, err := waitGone(ctx, record, 10*time.Second)
		if err != nil {
			return err
		}
		if !gone {
			return fmt.Errorf("process %s (pid %d) is still there 10s after SIGKILL", record.Name, record.PID)
		}
	}
	return nil
}

// Identify describes running pids, leaving out those that have gone meanwhile.
func Identify(pids []int) []Record {
	var found []Record
	for _, pid := range pids {
		if record, err := newRecord(fmt.Sprintf("pid-%d", pid), pid, ""); err == nil {
			found = append(found, record)
		}
	}
	return found
}
