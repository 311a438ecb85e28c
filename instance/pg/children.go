package pg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// children are the processes that this process started and waits for itself. As PID 1 it also inherits orphans,
// which Reap must tell from them.
var children = &registry{pids: map[int]bool{}}

type registry struct {
	mu   sync.Mutex
	pids map[int]bool
}

// start starts a command; no orphan is reaped between its fork and its registration.
func (r *registry) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.pids[cmd.Process.Pid] = true
	return nil
}

func (r *registry) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pids, cmd.Process.Pid)
	return err
}

func (r *registry) run(cmd *exec.Cmd) error {
	if err := r.start(cmd); err != nil {
		return err
	}
	return r.wait(cmd)
}

// RunChild starts a command and waits for its end, as every child of the agent must be.
func RunChild(cmd *exec.Cmd) error { return children.run(cmd) }

// reap collects the children that ended and that nobody waits for.
func (r *registry) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range processes() {
		if p.parent == os.Getpid() && p.zombie && !r.pids[p.pid] {
			// Somebody else cannot have collected it; and if so, there is nothing to do.
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		}
	}
}

// Reap collects orphans until done is closed, as PID 1 must.
func Reap(done <-chan struct{}) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		select {
		case <-done:
			return
		case <-ended:
			children.reap()
		}
	}
}

type process struct {
	pid, parent int
	zombie      bool
	// started is when, by CLOCK_BOOTTIME.
	started time.Duration
}

// ticksPerSecond is in what /proc counts, on all of Linux's architectures that Go has.
const ticksPerSecond = 100

// processes lists what /proc shows; what ends meanwhile is left out.
func processes() []process {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var found []process
	for _, path := range stats {
		const parent, started = 1, 19
		pid, errPid := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := statFields(pid)
		if errPid != nil || len(fields) <= started {
			continue
		}
		parentPid, errParent := strconv.Atoi(fields[parent])
		ticks, errTicks := strconv.ParseInt(fields[started], 10, 64)
		if errParent != nil || errTicks != nil {
			continue
		}
		found = append(found, process{
			pid: pid, parent: parentPid, zombie: fields[0] == "Z", started: time.Duration(ticks) * time.Second / ticksPerSecond,
		})
	}
	return found
}

// statFields are what /proc tells of a process, from its state on, which is the third field of proc_pid_stat(5); nil if it
// is gone.
func statFields(pid int) []string {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	// "pid (name) state parent ...", where the name may hold spaces and parentheses.
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// working lists the processes whose working directory is dir: PostgreSQL's processes all work in their data directory.
func working(dir string) []int {
	var pids []int
	for _, p := range workers(dir) {
		pids = append(pids, p.pid)
	}
	return pids
}

func workers(dir string) []process {
	return slices.DeleteFunc(processes(), func(p process) bool {
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.pid), "cwd"))
		return err != nil || p.zombie || strings.TrimSuffix(cwd, " (deleted)") != dir || p.pid == os.Getpid()
	})
}

// KillWorking kills the processes that work in a data directory, and returns those that it found. They may take a
// moment to be gone.
func KillWorking(dir string) ([]int, error) {
	pids := working(dir)
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return pids, fmt.Errorf("cannot kill process %d of PostgreSQL: %w", pid, err)
		}
	}
	return pids, nil
}

// QuitWorking asks a postmaster to end at once, if it still works in its data directory: process numbers are reused.
func QuitWorking(dir string, pid int) error {
	if !slices.Contains(working(dir), pid) {
		return nil
	}
	if err := unix.Kill(pid, unix.SIGQUIT); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot end process %d of PostgreSQL: %w", pid, err)
	}
	return nil
}
