// Package cluster brings the local cluster up and down as a whole.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/acme/pg-operator/test/cluster/internal/files"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/programs"
)

// Settings are what a cluster was started with; they live in its state
// directory and every later command goes by them.
type Settings struct {
	Cache   string `json:"cache"`
	Version string `json:"version"`
	// Boot is the kernel's boot id: a cluster does not survive a restart of
	// the machine.
	Boot string `json:"boot"`
	// API and SOCKS are the gateway's addresses on the host's loopback.
	API   string   `json:"api"`
	SOCKS string   `json:"socks"`
	Nodes []string `json:"nodes"`
	// Images are the names of loaded images, Archives the files of others: a
	// node that comes later gets them too.
	Images   []string `json:"images"`
	Archives []string `json:"archives,omitempty"`
	// Leaving says that down has begun: what is left cannot be used again.
	Leaving bool `json:"leaving,omitempty"`
}

// ErrNotRunning means that there is no cluster.
var ErrNotRunning = errors.New("the local cluster is not running: start it with make cluster-up")

func settingsFile() string { return filepath.Join(layout.StateDir, "cluster.json") }

// loadSettings returns ErrNotRunning when there is no cluster.
func loadSettings() (*Settings, error) {
	data, err := os.ReadFile(settingsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotRunning
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the local cluster belongs to root: %w", err)
	}
	if err != nil {
		return nil, err
	}
	settings := &Settings{}
	if err := json.Unmarshal(data, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", settingsFile(), err)
	}
	return settings, nil
}

func (s *Settings) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(settingsFile(), append(data, '\n'), 0o644)
}

func (s *Settings) layout() layout.Cluster { return layout.New(s.Cache, s.Version) }

// Offline describes the cluster that a checkout would start.
func Offline(source string) (layout.Cluster, error) {
	cache, err := layout.CacheDir()
	if err != nil {
		return layout.Cluster{}, err
	}
	version, err := programs.KubernetesVersion(source)
	return layout.New(cache, version), err
}

// nodes returns the cluster's nodes in the order of their names.
func (s *Settings) nodes() ([]layout.Node, error) {
	var nodes []layout.Node
	for _, name := range s.Nodes {
		node, err := s.layout().Node(name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// node returns one node of the cluster.
func (s *Settings) node(name string) (layout.Node, error) {
	if !slices.Contains(s.Nodes, name) {
		return layout.Node{}, fmt.Errorf("the cluster has no node %q, only %s", name, strings.Join(s.Nodes, ", "))
	}
	return s.layout().Node(name)
}

// add adds names to a sorted set.
func add(set []string, names ...string) []string {
	set = append(slices.Clone(set), names...)
	slices.Sort(set)
	return slices.Compact(set)
}

// freeAddress finds a free port on loopback.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// lock keeps two launchers apart until unlock is called.
func lock() (unlock func(), err error) {
	if err = os.MkdirAll(filepath.Dir(layout.LockFile), 0o755); err != nil {
		return nil, err
	}
	handle, err := os.OpenFile(layout.LockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return func() { _ = handle.Close() }, nil
}
