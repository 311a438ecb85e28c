// Package addons configures what runs beside Kubernetes: DNS, cert-manager and
// the storage classes.
package addons

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"text/template"

	"github.com/acme/pg-operator/test/cluster/internal/api"
	"github.com/acme/pg-operator/test/cluster/internal/controlplane"
	"github.com/acme/pg-operator/test/cluster/internal/files"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

//go:embed objects.yaml
var objects []byte

// corefile answers for services and their addresses. A short cache keeps
// failovers visible; there is nothing to forward other names to.
var corefile = template.Must(template.New("Corefile").Parse(`.:53 {
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes {{.Domain}} in-addr.arpa {
        kubeconfig {{.Kubeconfig}}
        ttl 5
    }
    cache 5
}
`))

// DNSReady is the readiness URL of DNS in the control plane's namespace.
const DNSReady = "http://127.0.0.1:8181/ready"

// Apply applies the Services, namespaces and storage classes of the add-ons.
func Apply(ctx context.Context, client *api.Client) error {
	var text bytes.Buffer
	source, err := template.New("objects").Parse(string(objects))
	if err != nil {
		return err
	}
	err = source.Execute(&text, map[string]string{"DNSServiceIP": layout.DNSServiceIP, "DNSAddress": layout.ControlPlaneIP})
	if err != nil {
		return err
	}
	return client.Apply(ctx, text.Bytes())
}

// ApplyCRDs applies cert-manager's resource definitions.
func ApplyCRDs(ctx context.Context, client *api.Client, cluster layout.Cluster) error {
	found, err := filepath.Glob(filepath.Join(cluster.CRDs(), "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range found {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := client.Apply(ctx, data); err != nil {
			return err
		}
	}
	return nil
}

// CoreDNS is the DNS server behind the Service kube-dns.
func CoreDNS(cluster layout.Cluster) (process.Spec, error) {
	config := cluster.Path("Corefile")
	err := files.Render(config, corefile, map[string]string{
		"Domain": layout.ClusterDomain, "Kubeconfig": cluster.Kubeconfig("coredns"),
	}, 0o644)
	spec := inside("coredns", cluster.Program("coredns"), "-conf", config)
	spec.Files = []string{config, cluster.Kubeconfig("coredns")}
	return spec, err
}

// CertManager runs cert-manager's controllers and CA injector.
func CertManager(cluster layout.Cluster) process.Spec {
	config := cluster.Kubeconfig("cert-manager")
	spec := inside("cert-manager", cluster.Program("cert-manager"), "-kubeconfig", config)
	spec.Files = []string{config}
	return spec
}

// DNSHealthy succeeds when DNS has read the cluster's services.
func DNSHealthy(ctx context.Context) error { return controlplane.Healthy(ctx, DNSReady) }

func inside(name string, args ...string) process.Spec {
	return process.Spec{Name: name, Args: args, Namespace: layout.NamespacePath(layout.ControlPlaneNamespace)}
}
