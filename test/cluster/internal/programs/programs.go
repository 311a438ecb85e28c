// Package programs builds Kubernetes and the cluster's own programs from Go
// modules into a cache outside the checkout.
package programs

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/files"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// Purpose selects what to build.
type Purpose string

const (
	// ForAPI is what tests against the API server alone need.
	ForAPI Purpose = "api"
	// ForE2E is the whole cluster.
	ForE2E Purpose = "e2e"
)

// program is one thing to build.
type program struct {
	name string
	// path is the package: an import path of module, or ./cmd/... of our own.
	path   string
	module string
	// sources are the directories whose content decides whether a program of
	// our own is up to date.
	sources []string
	api     bool
}

const kubernetes = "k8s.io/kubernetes"

// all is in the order of need: control-plane tests can start before the rest
// is built, and packages shared with the API server come early.
var all = []program{
	{name: "etcd", path: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3", api: true},
	{name: "kube-apiserver", path: kubernetes + "/cmd/kube-apiserver", module: kubernetes, api: true},
	{name: "kubectl", path: kubernetes + "/cmd/kubectl", module: kubernetes, api: true},
	{name: "cert-manager", path: "./cmd/cert-manager", module: certManager, sources: []string{"cmd/cert-manager"}, api: true},
	{name: "kube-controller-manager", path: kubernetes + "/cmd/kube-controller-manager", module: kubernetes},
	{name: "kube-scheduler", path: kubernetes + "/cmd/kube-scheduler", module: kubernetes},
	{name: "kubelet", path: kubernetes + "/cmd/kubelet", module: kubernetes},
	{name: "kube-proxy", path: kubernetes + "/cmd/kube-proxy", module: kubernetes},
	{name: "coredns", path: "./cmd/coredns", module: "github.com/coredns/coredns", sources: []string{"cmd/coredns"}},
	{name: "provisioner", path: "./cmd/provisioner", sources: []string{"cmd/provisioner", "internal/volumes"}},
	{name: "gateway", path: "./cmd/gateway", sources: []string{"cmd/gateway", "internal/gateway", "internal/netns", "internal/layout"}},
}

const certManager = "github.com/cert-manager/cert-manager"

// Builder builds the programs of one source tree into one cache.
type Builder struct {
	// Source is the directory of this Go module.
	Source  string
	Cluster layout.Cluster
	// Out receives progress.
	Out io.Writer
}

// Build builds what the purpose needs and the cache lacks, one after another:
// linking Kubernetes takes up to 2.7 GB, and two builds only slow each other.
func (b Builder) Build(ctx context.Context, purpose Purpose) error {
	if err := os.MkdirAll(b.Cluster.Bin(), 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(b.Cluster.Programs(), "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	missing, err := b.missing(purpose)
	if err != nil {
		return err
	}
	begin := time.Now()
	for i, p := range missing {
		fmt.Fprintf(b.Out, "build [%2d/%d] %5.1fs  %s (%s)\n", i+1, len(missing), time.Since(begin).Seconds(), p.name, p.path)
		if err := b.build(ctx, p); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(b.Out, "build: %d programs in %.1fs, cached in %s\n", len(missing), time.Since(begin).Seconds(), b.Cluster.Bin())
	}
	return b.copyCRDs(ctx)
}

// Missing returns the names of the programs that Build would build.
func (b Builder) Missing(purpose Purpose) ([]string, error) {
	missing, err := b.missing(purpose)
	var names []string
	for _, p := range missing {
		names = append(names, p.name)
	}
	return names, err
}

func (b Builder) missing(purpose Purpose) ([]program, error) {
	versions, err := requirements(filepath.Join(b.Source, "go.mod"))
	if err != nil {
		return nil, err
	}
	var missing []program
	for _, p := range all {
		if purpose == ForAPI && !p.api {
			continue
		}
		current, err := b.current(p, versions)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if !current {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// current reports whether the cached program is what a build would give: of the
// module version go.mod asks for and, for our own, from the same sources.
func (b Builder) current(p program, versions map[string]string) (bool, error) {
	info, err := buildinfo.ReadFile(b.Cluster.Program(p.name))
	if err != nil {
		return false, nil //nolint:nilerr // missing or damaged: build it
	}
	if p.module != "" {
		found := false
		for _, module := range append(info.Deps, &info.Main) {
			found = found || module.Path == p.module && module.Version == versions[p.module]
		}
		if !found {
			return false, nil
		}
	}
	if p.sources == nil {
		return true, nil
	}
	stamp, err := sourceHash(b.Source, p.sources)
	if err != nil {
		return false, err
	}
	old, err := os.ReadFile(b.stampFile(p))
	return err == nil && string(old) == stamp, nil
}

func (b Builder) stampFile(p program) string {
	return filepath.Join(b.Cluster.Programs(), "stamps", p.name)
}

func (b Builder) build(ctx context.Context, p program) error {
	stamp := ""
	if p.sources != nil {
		var err error
		if stamp, err = sourceHash(b.Source, p.sources); err != nil {
			return err
		}
	}
	temporary := filepath.Join(b.Cluster.Bin(), "."+p.name+".new")
	defer func() { _ = os.Remove(temporary) }()
	if out, err := b.goCommand(ctx, "build", "-ldflags", ldflags(b.Cluster.Version), "-o", temporary, p.path).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s from %s: %w\n%s", p.name, p.path, err, tail(out, 4000))
	}
	if err := replace(b.Cluster.Program(p.name), temporary); err != nil {
		return err
	}
	if p.sources == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(b.stampFile(p)), 0o755); err != nil {
		return err
	}
	return files.Write(b.stampFile(p), []byte(stamp), 0o644)
}

// replace puts a new program in place, but leaves an equal one as it is: a
// running cluster restarts what changed.
func replace(file, temporary string) error {
	fresh, err := os.ReadFile(temporary)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, fresh) {
		return nil
	}
	return os.Rename(temporary, file)
}

// goCommand runs the go tool with one fixed setting: another would compile all
// of Kubernetes again.
func (b Builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = b.Source
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off")
	return command
}

func ldflags(version string) string {
	const pkg = "k8s.io/component-base/version."
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	flags := []string{"-s -w", "-X " + pkg + "gitVersion=" + version}
	if len(parts) == 3 {
		flags = append(flags, "-X "+pkg+"gitMajor="+parts[0], "-X "+pkg+"gitMinor="+parts[1])
	}
	return strings.Join(flags, " ")
}

// copyCRDs puts cert-manager's resource definitions beside the programs.
func (b Builder) copyCRDs(ctx context.Context) error {
	versions, err := requirements(filepath.Join(b.Source, "go.mod"))
	if err != nil {
		return err
	}
	stamp := filepath.Join(b.Cluster.CRDs(), ".version")
	if old, readErr := os.ReadFile(stamp); readErr == nil && string(old) == versions[certManager] {
		return nil
	}
	out, err := b.goCommand(ctx, "list", "-m", "-f", "{{.Dir}}", certManager).Output()
	if err != nil {
		return fmt.Errorf("find the module %s: %w", certManager, err)
	}
	found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "deploy", "crds", "*.yaml"))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("the module %s has no deploy/crds/*.yaml", certManager)
	}
	if err := os.MkdirAll(b.Cluster.CRDs(), 0o755); err != nil {
		return err
	}
	for _, file := range found {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := files.Write(filepath.Join(b.Cluster.CRDs(), filepath.Base(file)), data, 0o644); err != nil {
			return err
		}
	}
	return files.Write(stamp, []byte(versions[certManager]), 0o644)
}

// lock keeps two builders apart.
func lock(file string) (unlock func(), err error) {
	handle, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), handle.Close())
	}
	return func() { _ = handle.Close() }, nil
}

func tail(out []byte, limit int) string {
	out = bytes.TrimSpace(out)
	if len(out) > limit {
		out = out[len(out)-limit:]
	}
	return string(out)
}

// ErrNoSource means that the Go module was not found.
var ErrNoSource = errors.New("run this inside a checkout of pg-operator: test/cluster/go.mod was not found in this directory or above it")

// FindSource finds the directory of this Go module from a directory inside the
// checkout.
func FindSource(from string) (string, error) {
	from, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	for dir := from; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "test", "cluster")} {
			data, err := os.ReadFile(filepath.Join(candidate, "go.mod"))
			if err == nil && modulePath(data) == "github.com/acme/pg-operator/test/cluster" {
				return candidate, nil
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		if dir == filepath.Dir(dir) {
			return "", ErrNoSource
		}
	}
}
