package node

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// Places outside the node's directories that cannot be configured.
const (
	// shimSockets is where containerd's shims listen.
	shimSockets = "/run/containerd/s/"
	// cniResults is where the runtime caches what the CNI plug-ins answered.
	cniResults = "/var/lib/cni/results"
	// logLinks is where the kubelet links to container logs.
	logLinks = "/var/log/containers"
	// devicePlugins is where the kubelet's device manager listens.
	devicePlugins = "/var/lib/kubelet/device-plugins"
)

// RemoveTraces removes what the runtime, the CNI plug-ins and the kubelet left
// outside the node's directories. It must run while the node's state is there.
func RemoveTraces(node layout.Node) error {
	addresses, err := filepath.Glob(node.Path("containerd", "io.containerd.runtime.v2.task", "k8s.io", "*", "address"))
	if err != nil {
		return err
	}
	var traces []string
	for _, file := range addresses {
		data, readErr := os.ReadFile(file)
		if readErr != nil {
			continue
		}
		socket := strings.TrimPrefix(strings.TrimSpace(string(data)), "unix://")
		if strings.HasPrefix(socket, shimSockets) {
			traces = append(traces, socket)
		}
	}
	results, err := os.ReadDir(cniResults)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var names []string
	for _, entry := range results {
		names = append(names, entry.Name())
	}
	for _, name := range ownResults(names, node.Namespace()) {
		traces = append(traces, filepath.Join(cniResults, name))
	}
	links, err := filepath.Glob(logLinks + "/*.log")
	if err != nil {
		return err
	}
	for _, link := range links {
		if target, readErr := os.Readlink(link); readErr == nil && strings.HasPrefix(target, node.Path()+"/") {
			traces = append(traces, link)
		}
	}
	// A container that went while containerd was killed has left no address.
	dead, err := deadSockets(shimSockets)
	if err != nil {
		return err
	}
	for _, file := range append(traces, dead...) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	removeEmpty(filepath.Clean(shimSockets), cniResults, filepath.Dir(cniResults), logLinks,
		devicePlugins, filepath.Dir(devicePlugins))
	return nil
}

// deadSockets are those in a directory that nobody listens on: they are of no use to anybody.
func deadSockets(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, name := range names {
		connection, err := net.DialTimeout("unix", name, time.Second)
		switch {
		case err == nil:
			_ = connection.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			dead = append(dead, name)
		}
	}
	return dead, nil
}

// ownResults picks the cached results of a network's sandboxes. Those of the
// loopback plug-in name the sandbox, not the network.
func ownResults(names []string, network string) []string {
	var own []string
	for _, name := range names {
		rest, found := strings.CutPrefix(name, network+"-")
		if !found {
			continue
		}
		own = append(own, name)
		sandbox, _, _ := strings.Cut(rest, "-")
		for _, other := range names {
			if strings.HasPrefix(other, "cni-loopback-"+sandbox+"-") {
				own = append(own, other)
			}
		}
	}
	return own
}

// removeEmpty removes directories that hold nothing any more; what somebody
// else put there stays.
func removeEmpty(dirs ...string) {
	for _, dir := range dirs {
		_ = os.Remove(dir)
	}
}
