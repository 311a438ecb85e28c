package netns

import (
	"context"
	"strings"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// EnsureControlPlane makes the control plane's namespace with the switch.
func EnsureControlPlane(ctx context.Context) error {
	if err := ensure(ctx, layout.ControlPlaneNamespace); err != nil {
		return err
	}
	return ensureBridge(ctx, layout.ControlPlaneNamespace, layout.Switch, layout.ControlPlaneIP+"/24")
}

// EnsureNode makes a node's namespace with its pod bridge and plugs it into the
// switch. A cable that was cut stays cut.
func EnsureNode(ctx context.Context, node layout.Node) error {
	namespace := node.Namespace()
	if err := ensure(ctx, namespace); err != nil {
		return err
	}
	if err := ensureBridge(ctx, namespace, layout.PodBridge, node.Gateway()+"/16"); err != nil {
		return err
	}
	if !linkExists(ctx, namespace, layout.Uplink) {
		err := ip(ctx, "link", "add", node.Cable(), "netns", layout.ControlPlaneNamespace,
			"type", "veth", "peer", "name", layout.Uplink, "netns", namespace)
		if err != nil {
			return err
		}
		if err := SetCable(ctx, node, true); err != nil {
			return err
		}
	}
	return all(ctx,
		[]string{"-n", layout.ControlPlaneNamespace, "link", "set", node.Cable(), "master", layout.Switch},
		[]string{"-n", namespace, "address", "replace", node.IP() + "/24", "dev", layout.Uplink},
		[]string{"-n", namespace, "link", "set", layout.Uplink, "up"},
		// Programs of the node itself reach ClusterIPs only if there is a
		// route before kube-proxy's rules rewrite the address.
		[]string{"-n", namespace, "route", "replace", layout.ServiceCIDR, "dev", layout.PodBridge},
		[]string{"-n", layout.ControlPlaneNamespace, "route", "replace", node.PodCIDR(), "via", node.IP()},
	)
}

// EnsureRoutes lets the pods of all nodes reach each other, and the control
// plane reach ClusterIPs through the first node whose cable is whole: the API
// server calls webhooks that way, through a real kube-proxy.
func EnsureRoutes(ctx context.Context, nodes []layout.Node) error {
	gateway := ""
	for _, node := range nodes {
		if gateway == "" && CableUp(ctx, node) {
			gateway = node.IP()
		}
		for _, peer := range nodes {
			if peer.Name == node.Name {
				continue
			}
			if err := ip(ctx, "-n", node.Namespace(), "route", "replace", peer.PodCIDR(), "via", peer.IP()); err != nil {
				return err
			}
		}
	}
	if gateway == "" {
		return nil
	}
	return ip(ctx, "-n", layout.ControlPlaneNamespace, "route", "replace", layout.ServiceCIDR, "via", gateway)
}

// SetCable plugs a node in or out at the switch. The node's own end stays
// configured, so nothing but the carrier is lost.
func SetCable(ctx context.Context, node layout.Node, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return ip(ctx, "-n", layout.ControlPlaneNamespace, "link", "set", node.Cable(), state)
}

// CableUp reports whether the node is plugged in.
func CableUp(ctx context.Context, node layout.Node) bool {
	out, err := output(ctx, "ip", "-n", layout.ControlPlaneNamespace, "-br", "link", "show", "dev", node.Cable(), "up")
	return err == nil && strings.TrimSpace(out) != ""
}

// RemoveNode deletes the node's namespace; its cable goes with it.
func RemoveNode(ctx context.Context, node layout.Node) error {
	return Delete(ctx, node.Namespace())
}

func ensureBridge(ctx context.Context, namespace, bridge, address string) error {
	if !linkExists(ctx, namespace, bridge) {
		if err := ip(ctx, "-n", namespace, "link", "add", bridge, "type", "bridge"); err != nil {
			return err
		}
	}
	return all(ctx,
		[]string{"-n", namespace, "address", "replace", address, "dev", bridge},
		[]string{"-n", namespace, "link", "set", bridge, "up"},
	)
}

func all(ctx context.Context, commands ...[]string) error {
	for _, command := range commands {
		if err := ip(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}
