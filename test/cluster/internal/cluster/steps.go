package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/addons"
	"github.com/acme/pg-operator/test/cluster/internal/api"
	"github.com/acme/pg-operator/test/cluster/internal/controlplane"
	"github.com/acme/pg-operator/test/cluster/internal/images"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/netns"
	"github.com/acme/pg-operator/test/cluster/internal/node"
	"github.com/acme/pg-operator/test/cluster/internal/programs"
	"github.com/acme/pg-operator/test/cluster/internal/steps"
)

const pauseImage = images.Pause

// startLimit is far beyond what a start takes on a busy machine of two cores.
const startLimit = 3 * time.Minute

// steps returns the whole start. What depends on nothing but the network comes
// first, so that containerd and etcd start side by side.
func (u *up) steps() []steps.Step {
	all := []steps.Step{
		{Name: "programs", After: []string{"preflight"}, Run: u.programs},
		{Name: "images", After: []string{"programs"}, Run: u.images},
		{Name: "network", After: []string{"preflight"}, Run: u.network},
		{Name: "keys", After: []string{"preflight"}, Run: u.keys},
		{Name: "etcd", After: []string{"programs", "network", "keys"}, Run: u.etcd},
		{Name: "kube-apiserver", After: []string{"etcd"}, Run: u.apiServer},
		{Name: "gateway", After: []string{"programs", "network"}, Run: u.gateway},
		{Name: "kube-controller-manager", After: []string{"kube-apiserver"}, Run: u.controllerManager},
		{Name: "kube-scheduler", After: []string{"kube-apiserver"}, Run: u.scheduler},
		{Name: "objects", After: []string{"kube-apiserver"}, Run: u.objects},
	}
	ready := []string{"kube-controller-manager", "kube-scheduler", "gateway"}
	for _, n := range u.nodes {
		all = append(all, u.nodeSteps(n)...)
		ready = append(ready, n.Name+" kubelet", n.Name+" kube-proxy", n.Name+" provisioner")
	}
	return append(all,
		steps.Step{Name: "coredns", After: []string{"objects"}, Run: u.coreDNS},
		steps.Step{Name: "cert-manager", After: []string{"objects"}, Run: u.certManager},
		steps.Step{Name: "ready", After: append(ready, "coredns", "cert-manager"), Run: u.ready},
	)
}

func (u *up) nodeSteps(n layout.Node) []steps.Step {
	with := func(run func(context.Context, layout.Node) (string, error)) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return run(ctx, n) }
	}
	return []steps.Step{
		{Name: n.Name + " containerd", After: []string{"network", "keys"}, Run: with(u.containerd)},
		{Name: n.Name + " images", After: []string{"images", n.Name + " containerd"}, Run: with(u.importImages)},
		{Name: n.Name + " kubelet", After: []string{"kube-apiserver", n.Name + " images"}, Run: with(u.kubelet)},
		{Name: n.Name + " kube-proxy", After: []string{"kube-apiserver"}, Run: with(u.proxy)},
		{Name: n.Name + " provisioner", After: []string{"objects"}, Run: with(u.provisioner)},
	}
}

func (u *up) programs(ctx context.Context) (string, error) {
	builder := programs.Builder{Source: u.options.Source, Cluster: u.cluster, Out: u.options.Out}
	missing, err := builder.Missing(programs.ForE2E)
	if err != nil {
		return "", err
	}
	if err := builder.Build(ctx, programs.ForE2E); err != nil {
		return "", err
	}
	if len(missing) > 0 {
		return "built " + list(missing), nil
	}
	return u.cluster.Version + " from the cache", nil
}

func (u *up) images(ctx context.Context) (string, error) {
	for _, name := range u.settings.Images {
		archive, err := images.Ensure(ctx, u.cluster.Cache, name, func(message string) {
			fmt.Fprintf(u.options.Out, "image %s: %s\n", name, message)
		})
		if err != nil {
			return "", fmt.Errorf("image %s: %w", name, err)
		}
		u.archives = append(u.archives, archive)
	}
	u.archives = append(u.archives, u.settings.Archives...)
	return list(u.settings.Images), nil
}

func (u *up) network(ctx context.Context) (string, error) {
	if err := netns.EnsureControlPlane(ctx); err != nil {
		return "", err
	}
	for _, n := range u.nodes {
		if err := netns.EnsureNode(ctx, n); err != nil {
			return "", err
		}
		if err := netns.Uncut(ctx, n); err != nil {
			return "", err
		}
		if err := netns.SetCable(ctx, n, true); err != nil {
			return "", err
		}
	}
	return "namespaces " + layout.ControlPlaneNamespace + " " + list(u.settings.Nodes), netns.EnsureRoutes(ctx, u.nodes)
}

func (u *up) keys(context.Context) (string, error) {
	if err := controlplane.Directories(u.cluster); err != nil {
		return "", err
	}
	if err := controlplane.PKI(u.cluster, u.authority); err != nil {
		return "", err
	}
	for _, n := range u.nodes {
		if err := node.Configure(u.cluster, n, u.authority); err != nil {
			return "", fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return "", u.authority.Kubeconfig(u.cluster.AdminKubeconfig(), "admin", "https://"+u.settings.API)
}

func (u *up) etcd(ctx context.Context) (string, error) {
	return u.start(ctx, controlplane.Etcd(u.cluster), startLimit, controlplane.EtcdHealthy)
}

func (u *up) apiServer(ctx context.Context) (string, error) {
	client, err := api.New(u.authority)
	if err != nil {
		return "", err
	}
	spec, err := controlplane.APIServer(u.cluster, u.authority)
	if err != nil {
		return "", err
	}
	return u.start(ctx, spec, startLimit, client.Ready)
}

func (u *up) gateway(ctx context.Context) (string, error) {
	message, err := u.start(ctx, controlplane.Gateway(u.cluster, u.settings.API, u.settings.SOCKS), 0, nil)
	return fmt.Sprintf("%s, API %s, SOCKS %s", message, u.settings.API, u.settings.SOCKS), err
}

func (u *up) controllerManager(ctx context.Context) (string, error) {
	return u.start(ctx, controlplane.ControllerManager(u.cluster, u.authority), 0, nil)
}

func (u *up) scheduler(ctx context.Context) (string, error) {
	return u.start(ctx, controlplane.Scheduler(u.cluster), 0, nil)
}

func (u *up) objects(ctx context.Context) (string, error) {
	client, err := api.New(u.authority)
	if err != nil {
		return "", err
	}
	if err := addons.Apply(ctx, client); err != nil {
		return "", err
	}
	return "DNS service, storage classes, cert-manager resources", addons.ApplyCRDs(ctx, client, u.cluster)
}

func (u *up) coreDNS(ctx context.Context) (string, error) {
	spec, err := addons.CoreDNS(u.cluster)
	if err != nil {
		return "", err
	}
	return u.start(ctx, spec, startLimit, addons.DNSHealthy)
}

// certManager starts when the API server serves its resources: its injector
// ends at once if they are unknown.
func (u *up) certManager(ctx context.Context) (string, error) {
	client, err := api.New(u.authority)
	if err != nil {
		return "", err
	}
	err = u.table.Await(ctx, "kube-apiserver", startLimit, func(ctx context.Context) error {
		for _, resource := range []string{"certificates", "certificaterequests", "issuers", "clusterissuers"} {
			if getErr := client.Get(ctx, "/apis/cert-manager.io/v1/"+resource, &struct{}{}); getErr != nil {
				return getErr
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return u.start(ctx, addons.CertManager(u.cluster), 0, nil)
}

// containerd starts from a store that outlives clusters, so what an earlier
// cluster left in its records is removed before the first kubelet sees it.
func (u *up) containerd(ctx context.Context, n layout.Node) (string, error) {
	message, err := u.start(ctx, node.Containerd(n), startLimit, func(ctx context.Context) error { return node.RuntimeReady(ctx, n) })
	if err != nil {
		return "", err
	}
	if _, known := u.table.Get(n.Process("kubelet")); known {
		return message, nil
	}
	return message, node.Purge(ctx, n)
}

func (u *up) importImages(ctx context.Context, n layout.Node) (string, error) {
	count := 0
	for _, archive := range u.archives {
		imported, err := node.Import(ctx, n, archive)
		if err != nil {
			return "", err
		}
		if imported {
			count++
		}
	}
	return strconv.Itoa(count) + " imported", nil
}

func (u *up) kubelet(ctx context.Context, n layout.Node) (string, error) {
	return u.start(ctx, node.Kubelet(u.cluster, n, u.authority), 0, nil)
}

func (u *up) proxy(ctx context.Context, n layout.Node) (string, error) {
	return u.start(ctx, node.Proxy(u.cluster, n), 0, nil)
}

func (u *up) provisioner(ctx context.Context, n layout.Node) (string, error) {
	return u.start(ctx, node.Provisioner(u.cluster, n), 0, nil)
}

// ready waits for what the first pod needs: nodes, and the service account that
// the controller manager makes.
func (u *up) ready(ctx context.Context) (string, error) {
	client, err := api.New(u.authority)
	if err != nil {
		return "", err
	}
	for _, n := range u.nodes {
		err = u.table.Await(ctx, n.Process("kubelet"), startLimit, func(ctx context.Context) error {
			return client.NodeReady(ctx, n.Name)
		})
		if err != nil {
			return "", err
		}
	}
	err = u.table.Await(ctx, "kube-controller-manager", startLimit, func(ctx context.Context) error {
		return client.Get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", &struct{}{})
	})
	if err != nil {
		return "", err
	}
	for _, name := range u.started() {
		if record, known := u.table.Get(name); known && !record.Alive() {
			return "", fmt.Errorf("%s has ended; see %s", name, u.table.Log(name))
		}
	}
	return "nodes " + strings.Join(u.settings.Nodes, ", "), nil
}

// started names the processes that have no probe of their own.
func (u *up) started() []string {
	names := []string{"gateway", "kube-scheduler", "cert-manager"}
	for _, n := range u.nodes {
		names = append(names, n.Process("kube-proxy"), n.Process("provisioner"))
	}
	return names
}
