package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/test/cluster/internal/api"
	"github.com/acme/pg-operator/test/cluster/internal/images"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/netns"
	"github.com/acme/pg-operator/test/cluster/internal/node"
	"github.com/acme/pg-operator/test/cluster/internal/pki"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

// FromAPI cuts a node from the API server instead of from a peer.
const FromAPI = "api"

// Cut takes a node off the network. With from it only drops the packets between
// the node and another one, or the API server; with oneWay only those that the
// node sends.
func Cut(ctx context.Context, name, from string, oneWay bool) error {
	return withNode(name, func(settings *Settings, n layout.Node) error {
		switch from {
		case "":
			if oneWay {
				return errors.New("--one-way needs --from: a cable is cut in both directions")
			}
			if err := netns.SetCable(ctx, n, false); err != nil {
				return err
			}
			return routes(ctx, settings)
		case FromAPI:
			return netns.CutAPI(ctx, n, oneWay)
		case name:
			return fmt.Errorf("node %s cannot be cut from itself", name)
		}
		peer, err := settings.node(from)
		if err != nil {
			return err
		}
		return netns.CutPeer(ctx, n, peer, oneWay)
	})
}

// Lose lets a node's cable lose that many of a hundred packets, in each direction.
func Lose(ctx context.Context, name string, percent int) error {
	if percent < 1 || percent > 99 {
		return fmt.Errorf("a loss of %d of a hundred packets: want 1 to 99", percent)
	}
	return withNode(name, func(_ *Settings, n layout.Node) error { return netns.Lose(ctx, n, percent) })
}

// Heal undoes every cut and loss of a node.
func Heal(ctx context.Context, name string) error {
	return withNode(name, func(settings *Settings, n layout.Node) error {
		if err := netns.Uncut(ctx, n); err != nil {
			return err
		}
		if err := netns.SetCable(ctx, n, true); err != nil {
			return err
		}
		return routes(ctx, settings)
	})
}

func routes(ctx context.Context, settings *Settings) error {
	nodes, err := settings.nodes()
	if err != nil {
		return err
	}
	return netns.EnsureRoutes(ctx, nodes)
}

func withNode(name string, run func(*Settings, layout.Node) error) error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	n, err := settings.node(name)
	if err != nil {
		return err
	}
	return run(settings, n)
}

// ListNodes prints the nodes, whether they are ready, and their cuts.
func ListNodes(ctx context.Context, out io.Writer) error {
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	nodes, err := settings.nodes()
	if err != nil {
		return err
	}
	authority, err := pki.Open(settings.layout().PKI())
	if err != nil {
		return err
	}
	client, err := api.New(authority)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tADDRESS\tPODS\tCABLE\tREADY\tDROPS")
	for _, n := range nodes {
		cable, ready := "up", "yes"
		if !netns.CableUp(ctx, n) {
			cable = "cut"
		}
		if err := client.NodeReady(ctx, n.Name); err != nil {
			ready = "no"
		}
		rules, err := netns.Rules(ctx, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\n", n.Name, n.IP(), n.PodCIDR(), cable, ready, strings.Count(rules, "-j DROP"))
	}
	return table.Flush()
}

// LoadImages builds the named images where the cache lacks them and puts them
// on every node.
func LoadImages(ctx context.Context, names []string, out io.Writer) error {
	return withCluster(func(settings *Settings) error {
		for _, name := range names {
			archive, err := images.Ensure(ctx, settings.Cache, name, func(message string) {
				fmt.Fprintf(out, "image %s: %s\n", name, message)
			})
			if err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
			if err := load(ctx, settings, archive, out); err != nil {
				return err
			}
			settings.Images = add(settings.Images, name)
		}
		return settings.save()
	})
}

// LoadArchive puts the images of a docker archive on every node.
func LoadArchive(ctx context.Context, file string, out io.Writer) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	return withCluster(func(settings *Settings) error {
		if err := load(ctx, settings, file, out); err != nil {
			return err
		}
		settings.Archives = add(settings.Archives, file)
		return settings.save()
	})
}

func load(ctx context.Context, settings *Settings, archive string, out io.Writer) error {
	nodes, err := settings.nodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		imported, err := node.Import(ctx, n, archive)
		if err != nil {
			return err
		}
		if imported {
			fmt.Fprintf(out, "imported %s into %s\n", filepath.Base(archive), n.Name)
		}
	}
	return nil
}

func withCluster(run func(*Settings) error) error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	return run(settings)
}

// Exec replaces this process by a command inside a node's network namespace, or
// the control plane's. KUBECONFIG is one that is valid there.
func Exec(name string, command []string) error {
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	namespace := layout.ControlPlaneNamespace
	if name != layout.ControlPlane {
		n, nodeErr := settings.node(name)
		if nodeErr != nil {
			return nodeErr
		}
		namespace = n.Namespace()
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	env := append(os.Environ(), "KUBECONFIG="+settings.layout().Kubeconfig("admin"))
	args := append([]string{nsenter, "--net=" + layout.NamespacePath(namespace), "--"}, command...)
	return syscall.Exec(nsenter, args, env)
}

// Kubectl replaces this process by the cluster's kubectl.
func Kubectl(args []string) error {
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	cluster := settings.layout()
	program := cluster.Program("kubectl")
	return syscall.Exec(program, append([]string{program, "--kubeconfig=" + cluster.AdminKubeconfig()}, args...), os.Environ())
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func Kubeconfig() (string, error) {
	settings, err := loadSettings()
	if err != nil {
		return "", err
	}
	return settings.layout().AdminKubeconfig(), nil
}

// Env prints shell exports for programs in the host's network namespace. With
// no cluster it prints what tests against the API server alone need.
func Env(source string, out io.Writer) error {
	settings, err := loadSettings()
	if errors.Is(err, ErrNotRunning) {
		cluster, offlineErr := Offline(source)
		if offlineErr != nil {
			return offlineErr
		}
		return printEnv(out, [][2]string{{"KUBEBUILDER_ASSETS", cluster.Bin()}, {"PGO_CLUSTER_CRDS", cluster.CRDs()}})
	}
	if err != nil {
		return err
	}
	cluster := settings.layout()
	return printEnv(out, [][2]string{
		{"KUBEBUILDER_ASSETS", cluster.Bin()},
		{"KUBECONFIG", cluster.AdminKubeconfig()},
		{"PGO_CLUSTER_SOCKS", settings.SOCKS},
		{"PGO_CLUSTER_AUDIT_LOG", cluster.AuditLog()},
		{"PGO_CLUSTER_CRDS", cluster.CRDs()},
	})
}

func printEnv(out io.Writer, variables [][2]string) error {
	for _, variable := range variables {
		if _, err := fmt.Fprintf(out, "export %s='%s'\n", variable[0], strings.ReplaceAll(variable[1], "'", `'\''`)); err != nil {
			return err
		}
	}
	return nil
}

// Signal sends one of the cluster's processes a signal, by their names such as n1-kubelet and STOP.
func Signal(name, signal string) error {
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	number := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(signal), "SIG"))
	if number == 0 {
		return fmt.Errorf("there is no signal %q", signal)
	}
	record, known := process.NewTable(settings.layout()).Get(name)
	if !known || !record.Alive() {
		return fmt.Errorf("no process %q runs; cluster status lists them", name)
	}
	return record.Signal(number)
}
