// Package host reaches, from outside, into the containers of the local
// cluster's nodes on this machine: their processes, their cgroups, their files
// and their network.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is one process of a container.
type Process struct {
	// PID on this machine, and in its container.
	PID, Inner int
	// Parent is the PID of its parent on this machine.
	Parent int
	// Title is its command line, which PostgreSQL's processes change.
	Title string
}

// Container is a running container of a pod.
type Container struct {
	cgroups string // content of /proc/PID/cgroup of its first process
	id      string
	init    int
}

// Find looks for a container by its id, with or without the runtime's scheme; its first process may be stopped.
func Find(id string) (Container, error) {
	if _, after, found := strings.Cut(id, "://"); found {
		id = after
	}
	processes, err := processesOf(id)
	if err != nil {
		return Container{}, err
	}
	for _, p := range processes {
		if p.Inner != 1 {
			continue
		}
		cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
		if err != nil {
			return Container{}, err
		}
		return Container{cgroups: string(cgroups), id: id, init: p.PID}, nil
	}
	return Container{}, fmt.Errorf("container %s has no first process: %w", id, fs.ErrNotExist)
}

// Processes of the container, in no order.
func (c Container) Processes() ([]Process, error) { return processesOf(c.id) }

// Agent is the container's first process.
func (c Container) Agent() Process { return Process{PID: c.init, Inner: 1} }

// Postmaster is the process of PostgreSQL whose parent is none of PostgreSQL's.
func (c Container) Postmaster() (Process, error) {
	return c.one("postmaster", func(p Process, parent string) bool {
		return isPostgres(p.Title) && !isPostgres(parent)
	})
}

// Child is a process of PostgreSQL by the beginning of its title, such as "walreceiver".
func (c Container) Child(title string) (Process, error) {
	return c.one(title, func(p Process, _ string) bool { return strings.HasPrefix(role(p.Title), title) })
}

// role is what the title of a server's process says after "postgres: ", and after the cluster_name if that is set.
func role(title string) string {
	role, found := strings.CutPrefix(title, "postgres: ")
	if !found {
		return ""
	}
	if name, after, found := strings.Cut(role, ": "); found && !strings.Contains(name, " ") {
		return after
	}
	return role
}

func (c Container) one(what string, match func(p Process, parent string) bool) (Process, error) {
	processes, err := c.Processes()
	if err != nil {
		return Process{}, err
	}
	titles := map[int]string{}
	for _, p := range processes {
		titles[p.PID] = p.Title
	}
	for _, p := range processes {
		if match(p, titles[p.Parent]) {
			return p, nil
		}
	}
	return Process{}, fmt.Errorf("no %s among the %d processes of container %s: %w", what, len(processes), c.id, fs.ErrNotExist)
}

// isPostgres tells whether a title is of a server's process: "postgres -D ..." or "postgres: ...".
func isPostgres(title string) bool {
	name, _, _ := strings.Cut(title, " ")
	return filepath.Base(strings.TrimSuffix(name, ":")) == "postgres"
}

// Signal sends the process a signal, unless it is gone.
func (p Process) Signal(signal syscall.Signal) error {
	if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s to %d: %w", signal, p.PID, err)
	}
	return nil
}

// Path is where this machine sees a file of the container.
func (c Container) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", c.init, path) }

// Freeze stops every process of the container at once, or lets them go on, by the freezer of cgroup v1.
func (c Container) Freeze(frozen bool) error {
	state := "THAWED"
	if frozen {
		state = "FROZEN"
	}
	return c.control("freezer", "freezer.state", state)
}

// SlowWrites lets the container write that often a second to the device of one of its files, by blkio of cgroup v1; 0
// takes the limit away.
func (c Container) SlowWrites(path string, perSecond int) error {
	var stat unix.Stat_t
	if err := unix.Stat(c.Path(path), &stat); err != nil {
		return err
	}
	return c.control("blkio", "blkio.throttle.write_iops_device",
		fmt.Sprintf("%d:%d %d", unix.Major(stat.Dev), unix.Minor(stat.Dev), perSecond))
}

// goingDown is XFS_IOC_GOINGDOWN of xfs_fs.h, and withoutLog its XFS_FSOP_GOING_FLAGS_NOLOGFLUSH.
const (
	goingDown  = 0x8004587d
	withoutLog = 2
)

// BreakVolume shuts down the XFS that a path of the container is on: every access fails until it is mounted anew.
func (c Container) BreakVolume(path string) error {
	volume, err := os.Open(c.Path(path))
	if err != nil {
		return err
	}
	defer func() { _ = volume.Close() }()
	return unix.IoctlSetPointerInt(int(volume.Fd()), goingDown, withoutLog)
}

// control writes a file of the container's cgroup under one of the controllers of cgroup v1.
func (c Container) control(controller, file, value string) error {
	for line := range strings.Lines(c.cgroups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] == controller {
			return os.WriteFile(filepath.Join("/sys/fs/cgroup", controller, fields[2], file), []byte(value), 0o644)
		}
	}
	return fmt.Errorf("this machine has no %s of cgroup v1", controller)
}

// processesOf lists the processes whose cgroups name a container.
func processesOf(id string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cgroups, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		if err != nil || !strings.Contains(string(cgroups), "/"+id) {
			continue // it has ended, or is somebody else's
		}
		status, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "status"))
		if err != nil {
			continue
		}
		title, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || len(title) == 0 {
			continue // a zombie
		}
		p := Process{PID: pid, Title: strings.TrimSpace(strings.ReplaceAll(string(title), "\x00", " "))}
		p.Parent, p.Inner = parseStatus(string(status))
		found = append(found, p)
	}
	return found, nil
}

// parseStatus reads the parent, and the pid in the innermost namespace, from /proc/PID/status.
func parseStatus(status string) (parent, inner int) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch name {
		case "PPid":
			parent, _ = strconv.Atoi(fields[0])
		case "NSpid":
			inner, _ = strconv.Atoi(fields[len(fields)-1])
		}
	}
	return parent, inner
}

// DialFrom connects from inside a node's network namespace to an IP address and port: to the node's own pods also
// while it is cut off from everything else.
func DialFrom(ctx context.Context, node, address string) (connection net.Conn, err error) {
	err = within("/run/netns/pgo-"+node, func() error {
		// The socket is made on this thread, because the address needs no resolver.
		connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	})
	return connection, err
}

// within runs a function on a thread inside a network namespace. The thread ends with its goroutine and is never led
// back: where "back" is cannot be asked for, as the process's own namespace is that of its first thread, which may be
// inside one itself.
func within(namespace string, run func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- enterAnd(namespace, run)
	}()
	return <-result
}

func enterAnd(namespace string, run func() error) error {
	file, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of %s: %w", namespace, err)
	}
	return run()
}
