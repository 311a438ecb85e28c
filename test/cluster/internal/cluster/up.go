package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/pki"
	"github.com/acme/pg-operator/test/cluster/internal/preflight"
	"github.com/acme/pg-operator/test/cluster/internal/process"
	"github.com/acme/pg-operator/test/cluster/internal/steps"
)

// Options say what Up shall bring up.
type Options struct {
	// Source is the directory of this Go module.
	Source string
	// Nodes are the nodes to have at least.
	Nodes []string
	// Images are the images to have on every node at least.
	Images []string
	// Archives are image archives of the caller's own, likewise.
	Archives []string
	// Kubectl is where to write the kubectl wrapper; empty writes none.
	Kubectl string
	Out     io.Writer
}

// Up makes the cluster run: it starts what is missing, repairs what is broken
// and heals what was cut. What runs already it leaves alone.
func Up(ctx context.Context, options Options) error {
	begin := time.Now()
	found, err := preflight.Check(ctx, options.Out)
	if err != nil {
		return err
	}
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	settings, err := prepare(ctx, options)
	if err != nil {
		return err
	}
	run, err := newUp(settings, options)
	if err != nil {
		return err
	}
	preflighted := steps.Step{Name: "preflight", Run: func(context.Context) (string, error) { return found, nil }}
	if err = steps.Run(ctx, options.Out, append([]steps.Step{preflighted}, run.steps()...)); err != nil {
		return err
	}
	if options.Kubectl != "" {
		if err = writeKubectl(run.cluster, options.Kubectl); err != nil {
			return err
		}
	}
	usage, err := Measure(settings)
	if err != nil {
		return err
	}
	fmt.Fprintf(options.Out, "cluster is ready after %.1fs, %d node(s), resident memory %s\n",
		time.Since(begin).Seconds(), len(settings.Nodes), mebibytes(usage.Total()))
	return nil
}

// prepare settles what the cluster shall be, and removes the rest of one that
// cannot be continued.
func prepare(ctx context.Context, options Options) (*Settings, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	wanted, err := Offline(options.Source)
	if err != nil {
		return nil, err
	}
	settings, err := loadSettings()
	switch {
	case errors.Is(err, ErrNotRunning):
	case err != nil:
		return nil, err
	case settings.Leaving, settings.Boot != boot:
		fmt.Fprintln(options.Out, "removing what is left of an earlier cluster")
		if err = down(ctx, settings, options.Out); err != nil {
			return nil, err
		}
		settings = nil
	case settings.Version != wanted.Version:
		return nil, fmt.Errorf("the running cluster has Kubernetes %s, this checkout wants %s: remove it first with make cluster-down", settings.Version, wanted.Version)
	}
	if settings == nil {
		if settings, err = newSettings(wanted, boot); err != nil {
			return nil, err
		}
	}
	settings.Nodes = add(settings.Nodes, options.Nodes...)
	settings.Images = add(settings.Images, options.Images...)
	settings.Archives = slices.DeleteFunc(add(settings.Archives, options.Archives...), func(archive string) bool {
		_, err := os.Stat(archive)
		return err != nil && !slices.Contains(options.Archives, archive)
	})
	if _, err := settings.nodes(); err != nil {
		return nil, err
	}
	return settings, settings.save()
}

func newSettings(wanted layout.Cluster, boot string) (*Settings, error) {
	if err := os.MkdirAll(layout.StateDir, 0o755); err != nil {
		return nil, err
	}
	api, err := freeAddress()
	if err != nil {
		return nil, err
	}
	socks, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return &Settings{
		Cache: wanted.Cache, Version: wanted.Version, Boot: boot, API: api, SOCKS: socks,
		Nodes: []string{"n1"}, Images: []string{pauseImage},
	}, nil
}

// up is one run of Up.
type up struct {
	options   Options
	settings  *Settings
	cluster   layout.Cluster
	nodes     []layout.Node
	table     *process.Table
	authority *pki.Authority
	archives  []string
}

func newUp(settings *Settings, options Options) (*up, error) {
	nodes, err := settings.nodes()
	if err != nil {
		return nil, err
	}
	cluster := settings.layout()
	authority, err := pki.Open(cluster.PKI())
	if err != nil {
		return nil, err
	}
	return &up{
		options: options, settings: settings, cluster: cluster, nodes: nodes,
		table: process.NewTable(cluster), authority: authority,
	}, nil
}

// start makes a process run and waits until its probe succeeds.
func (u *up) start(ctx context.Context, spec process.Spec, limit time.Duration, probe func(context.Context) error) (string, error) {
	started, err := u.table.Ensure(ctx, spec)
	if err != nil {
		return "", err
	}
	if probe != nil {
		if err := u.table.Await(ctx, spec.Name, limit, probe); err != nil {
			return "", err
		}
	}
	if started {
		return "started", nil
	}
	return "running", nil
}

// writeKubectl writes a script that runs the built kubectl on this cluster. It
// runs in the host's network namespace, so that forwarded ports are the user's.
func writeKubectl(cluster layout.Cluster, file string) error {
	script := fmt.Sprintf(`#!/bin/sh
# kubectl for the local cluster; written by make cluster-up.
if [ ! -r %[1]q ]; then
	echo "the local cluster is not running, or is not yours to read: start it with make cluster-up" >&2
	exit 1
fi
exec %[2]q --kubeconfig=%[1]q "$@"
`, cluster.AdminKubeconfig(), cluster.Program("kubectl"))
	if old, err := os.ReadFile(file); err == nil && string(old) == script {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(script), 0o755)
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

func list(names []string) string { return strings.Join(names, ", ") }
