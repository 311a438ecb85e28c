package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/netns"
	"github.com/acme/pg-operator/test/cluster/internal/node"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

// Down removes the cluster: processes, containers, mounts, loop devices,
// cgroups, namespaces and state. Programs and images stay in the cache.
func Down(ctx context.Context, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("removing the local cluster needs root, as starting it did: run it with sudo")
	}
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	settings, err := loadSettings()
	if errors.Is(err, ErrNotRunning) {
		if settings, err = remains(); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := down(ctx, settings, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "cluster removed in %.1fs\n", time.Since(begin).Seconds())
	return nil
}

// remains are the settings for removing what a cluster without settings left:
// any node there can be.
func remains() (*Settings, error) {
	cache, err := layout.CacheDir()
	return &Settings{Cache: cache}, err
}

func down(ctx context.Context, settings *Settings, out io.Writer) error {
	if _, err := os.Stat(settingsFile()); err == nil {
		settings.Leaving = true
		if err := settings.save(); err != nil {
			return err
		}
	}
	cluster := settings.layout()
	var nodes []layout.Node
	for i := 1; i <= layout.MaxNodes; i++ {
		n, err := cluster.Node(fmt.Sprintf("n%d", i))
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	for _, part := range []struct {
		what string
		run  func() error
	}{
		{"processes", func() error { return stopProcesses(ctx, cluster, nodes) }},
		{"mounts", func() error { return unmountAll(cluster, nodes) }},
		{"cgroups", func() error { return each(nodes, node.RemoveCgroups) }},
		{"namespaces", func() error { return removeNamespaces(ctx, nodes) }},
		{"files", func() error { return removeFiles(nodes) }},
	} {
		if err := part.run(); err != nil {
			return fmt.Errorf("remove the cluster's %s: %w", part.what, err)
		}
		fmt.Fprintf(out, "removed %s\n", part.what)
	}
	return nil
}

// stopProcesses ends everything but the container runtimes at once, for no data
// is kept; then the containers; then the runtimes, which clear their records
// first.
func stopProcesses(ctx context.Context, cluster layout.Cluster, nodes []layout.Node) error {
	table := process.NewTable(cluster)
	records, err := table.List()
	if err != nil {
		return err
	}
	var first []process.Record
	for _, record := range records {
		if !strings.HasSuffix(record.Name, "-containerd") {
			first = append(first, record)
		}
	}
	if err := process.KillAll(ctx, first); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := node.KillPods(ctx, n); err != nil {
			return err
		}
		name := n.Process("containerd")
		if record, known := table.Get(name); known && record.Alive() {
			// A runtime in a bad state is no reason to stop: the next start
			// clears its records.
			limited, cancel := context.WithTimeout(ctx, 30*time.Second)
			_ = node.Purge(limited, n)
			cancel()
			if err := table.Stop(ctx, name, 5*time.Second); err != nil {
				return err
			}
		}
	}
	return process.KillAll(ctx, process.Marked())
}

func unmountAll(cluster layout.Cluster, nodes []layout.Node) error {
	dirs := []string{cluster.State}
	for _, n := range nodes {
		dirs = append(dirs, n.ContainerdRoot())
	}
	for _, dir := range dirs {
		if err := node.Unmount(dir); err != nil {
			return err
		}
	}
	return node.DetachLoops(cluster.State)
}

func removeNamespaces(ctx context.Context, nodes []layout.Node) error {
	for _, n := range nodes {
		if err := netns.RemoveNode(ctx, n); err != nil {
			return err
		}
	}
	if err := netns.Delete(ctx, layout.ControlPlaneNamespace); err != nil {
		return err
	}
	return netns.RemoveRoot()
}

func removeFiles(nodes []layout.Node) error {
	if err := each(nodes, node.RemoveTraces); err != nil {
		return err
	}
	return os.RemoveAll(layout.StateDir)
}

func each(nodes []layout.Node, run func(layout.Node) error) error {
	for _, n := range nodes {
		if err := run(n); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}
