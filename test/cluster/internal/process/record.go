package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/acme/pg-operator/test/cluster/internal/files"
)

// Record identifies one started process beyond doubt: the start time differs
// when the kernel gives the same pid to another process, the boot id when the
// machine was restarted in between.
type Record struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Start is field 22 of /proc/PID/stat: clock ticks since boot.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
	// Spec is the hash of what was started, see Spec.hash.
	Spec string `json:"spec"`
}

// Alive reports whether the recorded process still runs; a zombie does not.
func (r Record) Alive() bool {
	boot, err := bootID()
	if err != nil || boot != r.Boot {
		return false
	}
	stat, err := readStat(r.PID)
	return err == nil && stat.start == r.Start && stat.state != 'Z' && stat.state != 'X'
}

// Signal sends a signal to the recorded process and to no other: the handle is
// taken before the check, and a handle never moves to a recycled pid.
func (r Record) Signal(signal syscall.Signal) error {
	handle, err := os.FindProcess(r.PID)
	if err != nil {
		return fmt.Errorf("process %s (pid %d): %w", r.Name, r.PID, err)
	}
	defer func() { _ = handle.Release() }()
	if !r.Alive() {
		return nil
	}
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to %s (pid %d): %w", signal, r.Name, r.PID, err)
	}
	return nil
}

// RSS is the resident memory of the process in bytes, 0 when it is gone.
func (r Record) RSS() int64 {
	if !r.Alive() {
		return 0
	}
	return RSS(r.PID)
}

// RSS is the resident memory of a pid in bytes, 0 when it is gone.
func RSS(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(status))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// newRecord describes a running pid.
func newRecord(name string, pid int, spec string) (Record, error) {
	boot, err := bootID()
	if err != nil {
		return Record{}, err
	}
	stat, err := readStat(pid)
	if err != nil {
		return Record{}, fmt.Errorf("process %s: %w", name, err)
	}
	return Record{Name: name, PID: pid, Start: stat.start, Boot: boot, Spec: spec}, nil
}

func (r Record) write(file string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return files.Write(file, append(data, '\n'), 0o600)
}

// readRecord returns false when there is no usable record; a torn or foreign
// file counts as none.
func readRecord(file string) (Record, bool, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	var record Record
	if json.Unmarshal(data, &record) != nil || record.PID <= 1 || record.Start == 0 {
		return Record{}, false, nil
	}
	return record, true, nil
}

type stat struct {
	state byte
	start uint64
}

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(data)
}

// parseStat reads proc_pid_stat(5); the command, field 2, is in parentheses and
// may itself hold spaces and parentheses.
func parseStat(data []byte) (stat, error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return stat{}, errors.New("stat without a command")
	}
	fields := strings.Fields(string(data[end+1:]))
	const startField = 22 - 3 // fields[0] is field 3
	if len(fields) <= startField {
		return stat{}, errors.New("stat is too short")
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("stat start time: %w", err)
	}
	return stat{state: fields[0][0], start: start}, nil
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
