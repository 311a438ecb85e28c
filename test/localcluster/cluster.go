// Package localcluster gives tests and benchmarks the project's own Kubernetes
// on this machine: a thin layer over the launcher, the command cluster of the
// module test/cluster, and clients for what it started.
package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// Cluster is the running local cluster.
type Cluster struct {
	// Config reaches the API server as its administrator, without a client-side rate limit.
	Config *rest.Config
	// Client knows the built-in kinds and those of pg-operator.
	Client client.WithWatch
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// AuditLog is the file of the API server's audit log.
	AuditLog string

	root     string // of the repository
	launcher string // the command cluster
	kubectl  string
	socks    string // address of the proxy into the cluster's network

	building sync.Mutex
	built    string // reference of the operator's image
}

// FromAPI stands for the API server where a node is cut from a peer.
const FromAPI = "api"

// Environment variables that the launcher's command env prints.
const (
	envKubeconfig = "KUBECONFIG"
	envAssets     = "KUBEBUILDER_ASSETS"
	envSOCKS      = "PGO_CLUSTER_SOCKS"
	envAuditLog   = "PGO_CLUSTER_AUDIT_LOG"
)

// Unavailable says why this machine cannot carry the local cluster, or nothing.
func Unavailable() string {
	switch {
	case runtime.GOOS != "linux":
		return "the local cluster needs Linux, this is " + runtime.GOOS
	case os.Geteuid() != 0:
		return "the local cluster needs root, for namespaces, mounts and cgroups"
	}
	return ""
}

// Start builds the launcher, starts the cluster unless it runs already, and
// connects to it. The cluster is left running: make cluster-down stops it.
func Start(ctx context.Context) (*Cluster, error) {
	if reason := Unavailable(); reason != "" {
		return nil, errors.New(reason)
	}
	root, err := repository()
	if err != nil {
		return nil, err
	}
	c := &Cluster{root: root, launcher: filepath.Join(root, "bin", "cluster")}
	if err := c.build(ctx, filepath.Join(root, "test", "cluster"), "./cmd/cluster", c.launcher); err != nil {
		return nil, err
	}
	if _, err := c.run(ctx, nil, c.launcher, "up", "--kubectl", filepath.Join(root, "bin", "kubectl")); err != nil {
		return nil, fmt.Errorf("start the local cluster: %w", err)
	}
	return c, c.connect(ctx)
}

func (c *Cluster) connect(ctx context.Context) error {
	text, err := c.run(ctx, nil, c.launcher, "env")
	if err != nil {
		return err
	}
	env := parseEnv(text)
	for _, name := range []string{envKubeconfig, envAssets, envSOCKS, envAuditLog} {
		if env[name] == "" {
			return fmt.Errorf("%s env printed no %s: %q", c.launcher, name, text)
		}
	}
	c.Kubeconfig, c.socks, c.AuditLog = env[envKubeconfig], env[envSOCKS], env[envAuditLog]
	c.kubectl = filepath.Join(env[envAssets], "kubectl")
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig of the local cluster: %w", err)
	}
	c.Config.QPS = -1
	log.SetLogger(logr.Discard()) // the clients' library asks for one; tests speak for themselves
	c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: Scheme()})
	return err
}

// Scheme knows the built-in kinds and those of pg-operator.
func Scheme() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// Kubectl runs the real kubectl and returns what it wrote to standard output;
// the error of a failed run holds what it wrote to standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with text for its standard input.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	args = append([]string{"--kubeconfig", c.Kubeconfig}, args...)
	return c.run(ctx, []byte(input), c.kubectl, args...)
}

// LoadImage builds images by the names of the launcher, where the machine's
// cache lacks them, and puts them on every node.
func (c *Cluster) LoadImage(ctx context.Context, names ...string) error {
	_, err := c.run(ctx, nil, c.launcher, append([]string{"image", "load"}, names...)...)
	return err
}

// LoadImageArchive puts the images of a Docker archive on every node.
func (c *Cluster) LoadImageArchive(ctx context.Context, file string) error {
	_, err := c.run(ctx, nil, c.launcher, "image", "load-archive", file)
	return err
}

// AddNode starts another node, n2 to n4; one that runs is fine.
func (c *Cluster) AddNode(ctx context.Context, name string) error {
	_, err := c.run(ctx, nil, c.launcher, "node", "add", name)
	return err
}

// CutNode unplugs a node: no packet reaches or leaves it until HealNode.
func (c *Cluster) CutNode(ctx context.Context, name string) error {
	_, err := c.run(ctx, nil, c.launcher, "node", "cut", name)
	return err
}

// CutNodeFrom drops what a node and another one, or the API server (FromAPI), send each other until HealNode.
func (c *Cluster) CutNodeFrom(ctx context.Context, name, from string) error {
	_, err := c.run(ctx, nil, c.launcher, "node", "cut", name, "--from", from)
	return err
}

// CutNodeOneWay drops only what a node sends to another one, or to the API server (FromAPI), until HealNode.
func (c *Cluster) CutNodeOneWay(ctx context.Context, name, from string) error {
	_, err := c.run(ctx, nil, c.launcher, "node", "cut", name, "--from", from, "--one-way")
	return err
}

// LosePackets drops that many of a hundred packets of a node, in each direction, until HealNode.
func (c *Cluster) LosePackets(ctx context.Context, name string, percent int) error {
	_, err := c.run(ctx, nil, c.launcher, "node", "cut", name, "--loss", strconv.Itoa(percent))
	return err
}

// Signal sends a process of the cluster, such as kube-apiserver, a signal by its name, such as STOP.
func (c *Cluster) Signal(ctx context.Context, process, signal string) error {
	_, err := c.run(ctx, nil, c.launcher, "signal", process, signal)
	return err
}

// HealNode plugs a node in again and undoes its cuts.
func (c *Cluster) HealNode(ctx context.Context, name string) error {
	_, err := c.run(ctx, nil, c.launcher, "node", "heal", name)
	return err
}

// build compiles a command as the project always does, so that the build cache is shared.
func (c *Cluster) build(ctx context.Context, module, pkg, output string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", output, pkg)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// run runs a program and returns its standard output.
func (c *Cluster) run(ctx context.Context, input []byte, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = c.root
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// parseEnv reads lines of NAME=value, with or without export and quotes.
func parseEnv(text string) map[string]string {
	env := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if found {
			env[name] = strings.Trim(value, `"'`)
		}
	}
	return env
}

// repository is the directory of the project's main module, at or above the working directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module github.com/acme/pg-operator\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod of pg-operator at or above the working directory")
		}
	}
}
