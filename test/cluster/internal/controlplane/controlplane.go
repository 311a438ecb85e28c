// Package controlplane configures etcd, the API server, the controller manager
// and the scheduler. All run in the control plane's network namespace.
package controlplane

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/files"
	"github.com/acme/pg-operator/test/cluster/internal/gateway"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/pki"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

//go:embed audit-policy.yaml
var auditPolicy []byte

const etcdAddress = "127.0.0.1:2379"

// Server is the URL of the API server inside the cluster's network.
func Server() string {
	return "https://" + net.JoinHostPort(layout.ControlPlaneIP, strconv.Itoa(layout.APIPort))
}

// users are the control plane's own clients of the API server, and the programs
// that run beside it with an administrator's rights but a name of their own, so
// that the audit log tells them apart.
var users = []struct{ name, user, group string }{
	{"admin", "admin", "system:masters"},
	{"controller-manager", "system:kube-controller-manager", ""},
	{"scheduler", "system:kube-scheduler", ""},
	{"kube-proxy", "system:kube-proxy", ""},
	{"coredns", "coredns", "system:masters"},
	{"cert-manager", "cert-manager", "system:masters"},
	{"provisioner", "provisioner", "system:masters"},
}

// PKI makes the keys, certificates and kubeconfigs of the control plane.
func PKI(cluster layout.Cluster, authority *pki.Authority) error {
	err := authority.Server("apiserver", "127.0.0.1", layout.ControlPlaneIP, layout.APIServiceIP, "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+layout.ClusterDomain)
	if err != nil {
		return err
	}
	if err = authority.Client("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return err
	}
	if err = authority.SigningKey("service-accounts"); err != nil {
		return err
	}
	proxy, err := frontProxy(cluster)
	if err != nil {
		return err
	}
	if err := proxy.Client(frontProxyName, frontProxyName); err != nil {
		return err
	}
	for _, u := range users {
		var groups []string
		if u.group != "" {
			groups = append(groups, u.group)
		}
		if err := authority.Client(u.name, u.user, groups...); err != nil {
			return err
		}
		if err := authority.Kubeconfig(cluster.Kubeconfig(u.name), u.name, Server()); err != nil {
			return err
		}
	}
	return files.Write(auditPolicyFile(cluster), auditPolicy, 0o644)
}

// frontProxyName is the user as whom the API server calls aggregated ones.
const frontProxyName = "front-proxy"

// frontProxy is the authority of that user. It must be another than the
// cluster's, or any client certificate could impersonate anybody.
func frontProxy(cluster layout.Cluster) (*pki.Authority, error) {
	return pki.Open(filepath.Join(cluster.PKI(), frontProxyName))
}

func auditPolicyFile(cluster layout.Cluster) string { return cluster.Path("audit-policy.yaml") }

// Etcd does not wait for the disk: the data of a test cluster need not survive
// a crash of the machine.
func Etcd(cluster layout.Cluster) process.Spec {
	return inside("etcd", cluster.Program("etcd"),
		"--data-dir="+cluster.Path("etcd"),
		"--listen-client-urls=http://"+etcdAddress,
		"--advertise-client-urls=http://"+etcdAddress,
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380",
		"--unsafe-no-fsync",
		"--log-level=warn",
	)
}

// APIServer reaches webhooks at their ClusterIP and kubelets by address.
func APIServer(cluster layout.Cluster, authority *pki.Authority) (process.Spec, error) {
	proxy, err := frontProxy(cluster)
	if err != nil {
		return process.Spec{}, err
	}
	spec := inside("kube-apiserver", cluster.Program("kube-apiserver"),
		"--advertise-address="+layout.ControlPlaneIP,
		"--secure-port="+strconv.Itoa(layout.APIPort),
		"--etcd-servers=http://"+etcdAddress,
		"--client-ca-file="+authority.CA(),
		"--tls-cert-file="+authority.Cert("apiserver"),
		"--tls-private-key-file="+authority.Key("apiserver"),
		"--kubelet-certificate-authority="+authority.CA(),
		"--kubelet-client-certificate="+authority.Cert("apiserver-kubelet"),
		"--kubelet-client-key="+authority.Key("apiserver-kubelet"),
		// Names would need DNS, which does not know nodes.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc."+layout.ClusterDomain,
		"--service-account-key-file="+authority.PublicKey("service-accounts"),
		"--service-account-signing-key-file="+authority.Key("service-accounts"),
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--requestheader-client-ca-file="+proxy.CA(),
		"--requestheader-allowed-names="+frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+proxy.Cert(frontProxyName),
		"--proxy-client-key-file="+proxy.Key(frontProxyName),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--audit-policy-file="+auditPolicyFile(cluster),
		"--audit-log-path="+cluster.AuditLog(),
		"--audit-log-maxsize=1024",
		"--audit-log-maxbackup=1",
		"--profiling=false",
	)
	spec.Files = []string{auditPolicyFile(cluster), authority.CA(), authority.Cert("apiserver")}
	return spec, nil
}

// ControllerManager elects no leader: there is only one, and after a crash its
// successor should act at once.
func ControllerManager(cluster layout.Cluster, authority *pki.Authority) process.Spec {
	config := cluster.Kubeconfig("controller-manager")
	spec := inside("kube-controller-manager", cluster.Program("kube-controller-manager"),
		"--kubeconfig="+config,
		"--authentication-kubeconfig="+config,
		"--authorization-kubeconfig="+config,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		// The default of 20 makes the first service accounts wait for seconds.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--use-service-account-credentials=true",
		"--root-ca-file="+authority.CA(),
		"--service-account-private-key-file="+authority.Key("service-accounts"),
		"--cluster-signing-cert-file="+authority.CA(),
		"--cluster-signing-key-file="+authority.Key("ca"),
		"--cluster-cidr="+layout.ClusterCIDR,
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--allocate-node-cidrs=false",
		// Otherwise it makes its own below /usr.
		"--flex-volume-plugin-dir="+cluster.Path("volume-plugins"),
		"--profiling=false",
	)
	spec.Files = []string{config}
	return spec
}

// Scheduler elects no leader either.
func Scheduler(cluster layout.Cluster) process.Spec {
	config := cluster.Kubeconfig("scheduler")
	spec := inside("kube-scheduler", cluster.Program("kube-scheduler"),
		"--kubeconfig="+config,
		"--authentication-kubeconfig="+config,
		"--authorization-kubeconfig="+config,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--profiling=false",
	)
	spec.Files = []string{config}
	return spec
}

// Gateway runs in the host's namespace and reaches into the control plane's.
func Gateway(cluster layout.Cluster, api, socks string) process.Spec {
	return process.Spec{Name: "gateway", Args: []string{cluster.Program("gateway"), "-api", api, "-socks", socks}}
}

// EtcdHealthy succeeds when etcd serves.
func EtcdHealthy(ctx context.Context) error { return Healthy(ctx, "http://"+etcdAddress+"/health") }

// Healthy succeeds when a URL inside the control plane's namespace answers 200.
func Healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	dialer := gateway.Dialer{Namespace: layout.ControlPlaneNamespace}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dialer.Dial(ctx, address) },
	}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func inside(name string, args ...string) process.Spec {
	return process.Spec{Name: name, Args: args, Namespace: layout.NamespacePath(layout.ControlPlaneNamespace)}
}

// Directories makes what the programs expect to be there.
func Directories(cluster layout.Cluster) error {
	return os.MkdirAll(cluster.Path("etcd"), 0o700)
}
