// Package layout names every directory, address and node of the local cluster,
// so that no other package invents one.
package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

const (
	// StateDir holds everything a running cluster owns. It is a fixed, short
	// path: sockets inside must stay below 108 bytes, and one machine carries
	// one cluster because namespaces and addresses are fixed too.
	StateDir = "/var/lib/pg-operator-cluster"
	// LockFile serialises up, down and node commands. It is outside StateDir
	// because down removes that directory.
	LockFile = "/run/lock/pg-operator-cluster.lock"
	// MarkerEnv is set on every process of the cluster, with StateDir as its
	// value, so that one whose pid file was lost is still found.
	MarkerEnv = "PG_OPERATOR_CLUSTER"

	// ControlPlane is the name under which commands address the namespace of
	// the control plane.
	ControlPlane = "control-plane"

	// ControlPlaneNamespace is the network namespace of etcd, the API server,
	// the controllers and the switch that joins the nodes.
	ControlPlaneNamespace = "pgo-cp"
	// ControlPlaneIP is where nodes and pods reach the API server and DNS.
	ControlPlaneIP = "10.87.0.1"
	// Switch is the bridge in the control plane's namespace.
	Switch = "sw0"
	// APIPort is the API server's port on ControlPlaneIP.
	APIPort = 6443

	// ServiceCIDR is the range of ClusterIPs.
	ServiceCIDR = "10.96.0.0/16"
	// APIServiceIP is the ClusterIP of kubernetes.default.
	APIServiceIP = "10.96.0.1"
	// DNSServiceIP is the ClusterIP of kube-dns.
	DNSServiceIP = "10.96.0.10"
	// ClusterCIDR covers the pod ranges of MaxNodes nodes.
	ClusterCIDR = "10.88.0.0/14"
	// ClusterDomain is the DNS zone of services.
	ClusterDomain = "cluster.local"

	// MaxNodes is how many pod ranges fit into ClusterCIDR.
	MaxNodes = 4
	// PodBridge is the bridge of pods in each node's namespace.
	PodBridge = "cni0"
	// Uplink is the node's end of the cable to the switch.
	Uplink = "eth0"
)

// Cluster locates what one cluster owns (State) and what survives it (Cache).
type Cluster struct {
	State   string
	Cache   string
	Version string
}

// New describes the machine's cluster with the given cache and the version of
// Kubernetes (v1.37.2).
func New(cache, version string) Cluster {
	return Cluster{State: StateDir, Cache: cache, Version: version}
}

// CacheDir is $PG_OPERATOR_CACHE, or pg-operator under the user's cache
// directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("PG_OPERATOR_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: set PG_OPERATOR_CACHE: %w", err)
	}
	return filepath.Join(dir, "pg-operator"), nil
}

// Programs is the directory of everything built for this Kubernetes version.
func (c Cluster) Programs() string { return filepath.Join(c.Cache, "kubernetes-"+c.Version) }

// Bin is the directory of built programs; it serves as KUBEBUILDER_ASSETS.
func (c Cluster) Bin() string { return filepath.Join(c.Programs(), "bin") }

// Program is the path of one built program.
func (c Cluster) Program(name string) string { return filepath.Join(c.Bin(), name) }

// CRDs is the directory of cert-manager's custom resource definitions.
func (c Cluster) CRDs() string { return filepath.Join(c.Programs(), "crds") }

// Path joins names under the state directory.
func (c Cluster) Path(names ...string) string {
	return filepath.Join(append([]string{c.State}, names...)...)
}

// PKI is the directory of keys, certificates and kubeconfigs.
func (c Cluster) PKI() string { return c.Path("pki") }

// Kubeconfig is the path of a component's kubeconfig, valid inside the
// cluster's namespaces.
func (c Cluster) Kubeconfig(component string) string { return c.Path("pki", component+".kubeconfig") }

// AdminKubeconfig is the administrator's kubeconfig, valid in the host's
// network namespace.
func (c Cluster) AdminKubeconfig() string { return c.Path("admin.kubeconfig") }

// AuditLog is the API server's audit log.
func (c Cluster) AuditLog() string { return c.Path("audit.log") }

// Node is one node of the cluster.
type Node struct {
	Name  string
	Index int
	dir   string
	cache string
}

var nodeName = regexp.MustCompile(`^n([1-9])$`)

// Node describes the node of that name: n1 to n4.
func (c Cluster) Node(name string) (Node, error) {
	match := nodeName.FindStringSubmatch(name)
	if match == nil {
		return Node{}, fmt.Errorf("node name %q: nodes are called n1 to n%d", name, MaxNodes)
	}
	index, _ := strconv.Atoi(match[1])
	if index > MaxNodes {
		return Node{}, fmt.Errorf("node name %q: at most %d nodes", name, MaxNodes)
	}
	return Node{Name: name, Index: index, dir: c.Path(name), cache: filepath.Join(c.Cache, "containerd", name)}, nil
}

// Namespace is the node's network namespace.
func (n Node) Namespace() string { return "pgo-" + n.Name }

// IP is the node's address on the switch.
func (n Node) IP() string { return fmt.Sprintf("10.87.0.%d", 10+n.Index) }

// PodCIDR is the range of the node's pods.
func (n Node) PodCIDR() string { return fmt.Sprintf("10.%d.0.0/16", 87+n.Index) }

// Gateway is the node's address on its pod bridge.
func (n Node) Gateway() string { return fmt.Sprintf("10.%d.0.1", 87+n.Index) }

// Cable is the switch's end of the cable to the node.
func (n Node) Cable() string { return "v-" + n.Name }

// CgroupRoot is the parent of all pods' cgroups, in every hierarchy.
func (n Node) CgroupRoot() string { return "/" + n.Namespace() }

// Path joins names under the node's state directory.
func (n Node) Path(names ...string) string {
	return filepath.Join(append([]string{n.dir}, names...)...)
}

// ContainerdRoot holds the node's images; it survives the cluster.
func (n Node) ContainerdRoot() string { return n.cache }

// ContainerdSocket is where the node's containerd listens.
func (n Node) ContainerdSocket() string { return n.Path("containerd.sock") }

// Volumes is the directory of the node's persistent volumes.
func (n Node) Volumes() string { return n.Path("volumes") }

// Process names a process of this node, for example n1-kubelet.
func (n Node) Process(program string) string { return n.Name + "-" + program }

// NamespacePath is the file that holds a network namespace open.
func NamespacePath(name string) string { return "/run/netns/" + name }
