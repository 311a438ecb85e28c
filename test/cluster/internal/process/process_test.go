package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newTable(t *testing.T) *Table {
	t.Helper()
	dir := t.TempDir()
	return &Table{Pids: filepath.Join(dir, "pids"), Logs: filepath.Join(dir, "logs"), exited: map[string]chan struct{}{}}
}

func sleeper(t *testing.T, table *Table, seconds string) Spec {
	t.Helper()
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep(1)")
	}
	name := strings.ReplaceAll(t.Name(), "/", "-")
	t.Cleanup(func() { _ = table.Stop(context.Background(), name, time.Second) })
	return Spec{Name: name, Args: []string{program, seconds}}
}

func TestEnsureStartsOnceAndRestartsOnChange(t *testing.T) {
	table := newTable(t)
	ensure := func(spec Spec) (bool, Record) {
		started, err := table.Ensure(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		record, _ := table.Get(spec.Name)
		return started, record
	}
	started, first := ensure(sleeper(t, table, "1000"))
	if !started || !first.Alive() {
		t.Fatal("not started")
	}
	started, second := ensure(sleeper(t, table, "1000"))
	if started || second != first {
		t.Errorf("started again: %+v, %+v", first, second)
	}
	started, third := ensure(sleeper(t, table, "2000"))
	if !started || third.PID == first.PID || first.Alive() {
		t.Errorf("not replaced: %+v, %+v", first, third)
	}
}

func TestEnsureEndsAProcessWhosePidFileWasLost(t *testing.T) {
	table := newTable(t)
	spec := sleeper(t, table, "1000")
	if _, err := table.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	lost, _ := table.Get(spec.Name)
	if err := os.Remove(table.pidFile(spec.Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if lost.Alive() {
		t.Error("two of them run")
	}
}

func TestARecycledPidIsNotOurs(t *testing.T) {
	self, err := newRecord("self", os.Getpid(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Fatal("a running process counts as gone")
	}
	for name, change := range map[string]func(*Record){
		"start time": func(r *Record) { r.Start++ },
		"boot":       func(r *Record) { r.Boot = "other" },
	} {
		other := self
		change(&other)
		if other.Alive() {
			t.Errorf("%s differs, yet it counts as alive", name)
		}
		// Would end the test if it reached this process.
		if err := other.Signal(syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTornPidFileCountsAsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pid")
	for _, content := range []string{"", "{", `{"pid":1,"start":5}`, `{"pid":77}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if record, known, err := readRecord(file); known || err != nil {
			t.Errorf("%q: %+v, %v", content, record, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 0 0"
	got, err := parseStat([]byte(line))
	if err != nil || got.state != 'S' || got.start != 98765 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "42 (x) S 1", "42 x S"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: want an error", bad)
		}
	}
}

func TestAwaitReportsAnEndedProcessWithItsLog(t *testing.T) {
	table := newTable(t)
	spec := Spec{Name: "fails", Args: []string{"/bin/sh", "-c", "echo the reason; exit 1"}}
	if _, err := table.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	err := table.Await(t.Context(), "fails", time.Minute, func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("error %v", err)
	}
}

func TestOpenFilesOfTheCallerAreNotInherited(t *testing.T) {
	table := newTable(t)
	held, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	fd, err := syscall.Dup(int(held.Fd())) // without close-on-exec, like a shell's
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	spec := sleeper(t, table, "1000")
	if _, err = table.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	record, _ := table.Get(spec.Name)
	open, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(record.PID), "fd", "*"))
	if err != nil || len(open) == 0 {
		t.Fatalf("open files: %v, %v", open, err)
	}
	for _, file := range open {
		if target, err := os.Readlink(file); err == nil && target == held.Name() {
			t.Errorf("%s is open in the process", target)
		}
	}
}
