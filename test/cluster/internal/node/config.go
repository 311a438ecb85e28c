// Package node configures and runs what makes one node: containerd, the
// kubelet, kube-proxy and the volume provisioner.
package node

import (
	_ "embed"
	"os"
	"path/filepath"
	"text/template"

	"github.com/acme/pg-operator/test/cluster/internal/controlplane"
	"github.com/acme/pg-operator/test/cluster/internal/files"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/pki"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

// PauseImage is the reference of the sandbox image.
const PauseImage = "registry.local/pause:1"

// PluginDir is where Debian's containernetworking-plugins are.
const PluginDir = "/usr/lib/cni"

var (
	//go:embed containerd.toml
	containerdText string
	//go:embed kubelet.yaml
	kubeletText string
	//go:embed cni.json
	cniText string
	//go:embed proxy.yaml
	proxyText string

	templates = map[string]*template.Template{
		"containerd.toml":            parse("containerd", containerdText),
		"kubelet.yaml":               parse("kubelet", kubeletText),
		"cni/net.d/10-pods.conflist": parse("cni", cniText),
		"proxy.yaml":                 parse("proxy", proxyText),
	}
)

func parse(name, text string) *template.Template {
	return template.Must(template.New(name).Option("missingkey=error").Parse(text))
}

// values are what the templates may use.
type values struct {
	layout.Node
	CA, Cert, Key                         string
	ProxyKubeconfig                       string
	PauseImage, PluginDir                 string
	DNSServiceIP, ClusterDomain, PodCIDRs string
}

// Configure makes the node's directories, certificates and configuration.
func Configure(cluster layout.Cluster, node layout.Node, authority *pki.Authority) error {
	for _, dir := range []string{node.Path("cni", "net.d"), node.Path("kubelet"), node.Path("logs"), node.Volumes(), node.ContainerdRoot()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	identity := node.Process("kubelet")
	if err := authority.Client(identity, "system:node:"+node.Name, "system:nodes"); err != nil {
		return err
	}
	if err := authority.Kubeconfig(cluster.Kubeconfig(identity), identity, controlplane.Server()); err != nil {
		return err
	}
	if err := authority.Server(serving(node), node.IP(), node.Gateway(), node.Name); err != nil {
		return err
	}
	v := newValues(cluster, node, authority)
	for name, source := range templates {
		if err := files.Render(node.Path(filepath.FromSlash(name)), source, v, 0o644); err != nil {
			return err
		}
	}
	return EnsureCgroups(node)
}

func newValues(cluster layout.Cluster, node layout.Node, authority *pki.Authority) values {
	return values{
		Node: node, CA: authority.CA(), Cert: authority.Cert(serving(node)), Key: authority.Key(serving(node)),
		ProxyKubeconfig: cluster.Kubeconfig("kube-proxy"),
		PauseImage:      PauseImage, PluginDir: PluginDir,
		DNSServiceIP: layout.DNSServiceIP, ClusterDomain: layout.ClusterDomain, PodCIDRs: layout.ClusterCIDR,
	}
}

func serving(node layout.Node) string { return node.Name + "-serving" }

// Containerd is the node's container runtime.
func Containerd(node layout.Node) process.Spec {
	return inside(node, "containerd", []string{"containerd", "--config", node.Path("containerd.toml")},
		node.Path("containerd.toml"), node.Path("cni", "net.d", "10-pods.conflist"))
}

// Kubelet registers the node.
func Kubelet(cluster layout.Cluster, node layout.Node, authority *pki.Authority) process.Spec {
	config := node.Path("kubelet.yaml")
	kubeconfig := cluster.Kubeconfig(node.Process("kubelet"))
	return inside(node, "kubelet", []string{
		cluster.Program("kubelet"),
		"--config=" + config,
		"--kubeconfig=" + kubeconfig,
		"--hostname-override=" + node.Name,
		"--node-ip=" + node.IP(),
		"--root-dir=" + node.Path("kubelet"),
		"--cert-dir=" + node.Path("kubelet", "pki"),
		"--node-labels=topology.kubernetes.io/zone=" + node.Name,
	}, config, kubeconfig, authority.Cert(serving(node)))
}

// Proxy is the node's kube-proxy.
func Proxy(cluster layout.Cluster, node layout.Node) process.Spec {
	config := node.Path("proxy.yaml")
	return inside(node, "kube-proxy", []string{cluster.Program("kube-proxy"), "--config=" + config},
		config, cluster.Kubeconfig("kube-proxy"))
}

// Provisioner makes and grows the node's volumes. It is in the host's mount
// namespace, like the kubelet that sees its mounts.
func Provisioner(cluster layout.Cluster, node layout.Node) process.Spec {
	kubeconfig := cluster.Kubeconfig("provisioner")
	return inside(node, "provisioner", []string{
		cluster.Program("provisioner"), "--kubeconfig", kubeconfig, "--node", node.Name, "--dir", node.Volumes(),
	}, kubeconfig)
}

func inside(node layout.Node, name string, args []string, configs ...string) process.Spec {
	return process.Spec{
		Name: node.Process(name), Args: args, Files: configs,
		Namespace: layout.NamespacePath(node.Namespace()),
	}
}
