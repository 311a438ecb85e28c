package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

// hierarchy is one mounted cgroup tree.
type hierarchy struct {
	path    string
	unified bool
	// options are the mount options, which name the v1 controllers.
	options []string
}

// hierarchies reads the mounted cgroup trees.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(data)), nil
}

func parseHierarchies(mounts string) []hierarchy {
	var found []hierarchy
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] != "cgroup" && fields[2] != "cgroup2" {
			continue
		}
		found = append(found, hierarchy{path: fields[1], unified: fields[2] == "cgroup2", options: strings.Split(fields[3], ",")})
	}
	return found
}

// EnsureCgroups makes the node's root cgroup in every hierarchy; the kubelet
// refuses to start below one that does not exist.
func EnsureCgroups(node layout.Node) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := filepath.Join(h.path, node.CgroupRoot())
		if err = os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		switch {
		case h.unified && len(all) == 1:
			err = enableControllers(h.path, dir)
		case slices.Contains(h.options, "cpuset"):
			err = inheritCPUSet(h.path, dir)
		}
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// inheritCPUSet fills in what a new v1 cpuset lacks: without processors and
// memory nodes no process can enter it.
func inheritCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers hands all v2 controllers down to the children of dirs.
func enableControllers(dirs ...string) error {
	for _, dir := range dirs {
		available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for controller := range strings.FieldsSeq(string(available)) {
			err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			if err != nil {
				return fmt.Errorf("enable %s: %w", controller, err)
			}
		}
	}
	return nil
}

// KillPods kills every process in the node's cgroups: exactly what its
// containers run, whether or not a runtime still knows them.
func KillPods(ctx context.Context, node layout.Node) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		pids, err := cgroupPids(node)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("node %s: processes %v of its pods survive SIGKILL", node.Name, pids)
		}
		if err := process.KillAll(ctx, process.Identify(pids)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// PodsRSS is the resident memory of all the node's containers in bytes.
func PodsRSS(node layout.Node) int64 {
	pids, err := cgroupPids(node)
	if err != nil {
		return 0
	}
	var sum int64
	for _, pid := range pids {
		sum += process.RSS(pid)
	}
	return sum
}

func cgroupPids(node layout.Node) ([]int, error) {
	var pids []int
	err := walkCgroups(node, func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // it went away, and its processes with it
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids, err
}

// RemoveCgroups removes the node's cgroups from every hierarchy.
func RemoveCgroups(node layout.Node) error {
	var dirs []string
	err := walkCgroups(node, func(dir string) error {
		dirs = append(dirs, dir)
		return nil
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs) // children come after their parents
	for _, dir := range dirs {
		if err := removeCgroup(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup tries for a while: the kernel lets go of a cgroup a moment after
// its last process is gone.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func walkCgroups(node layout.Node, visit func(dir string) error) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		err := filepath.WalkDir(filepath.Join(h.path, node.CgroupRoot()), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !entry.IsDir() {
				return err
			}
			return visit(path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
