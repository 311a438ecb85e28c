package netns

import (
	"context"
	"fmt"
	"strconv"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// cutChain holds the drop rules, in a table that kube-proxy and the CNI plugins
// leave alone. It sees packets before any address is rewritten on the way in
// and after it on the way out.
const (
	cutTable = "mangle"
	cutChain = "PGO-CUT"
)

// CutPeer drops what node and peer send each other, pods included. With oneWay
// only the packets from node to peer are dropped.
func CutPeer(ctx context.Context, node, peer layout.Node, oneWay bool) error {
	rules := peerRules(peer, oneWay)
	return drop(ctx, node.Namespace(), rules)
}

// CutAPI drops what the node and the API server send each other: the node's
// pods and kubelet lose the API, and the API loses the kubelet. DNS and the
// other nodes stay reachable.
func CutAPI(ctx context.Context, node layout.Node, oneWay bool) error {
	return drop(ctx, node.Namespace(), apiRules(node, oneWay))
}

// Lose drops a share of the packets that come over a node's cable, and of those
// that leave by it, by chance and each by itself.
func Lose(ctx context.Context, node layout.Node, percent int) error {
	return drop(ctx, node.Namespace(), lossRules(percent))
}

func lossRules(percent int) [][]string {
	var rules [][]string
	for _, direction := range []string{"-i", "-o"} {
		rules = append(rules, []string{
			direction, layout.Uplink, "-m", "statistic", "--mode", "random",
			"--probability", strconv.FormatFloat(float64(percent)/100, 'f', 2, 64),
		})
	}
	return rules
}

// Uncut removes all drop rules of a node.
func Uncut(ctx context.Context, node layout.Node) error {
	if !hasChain(ctx, node.Namespace()) {
		return nil
	}
	return iptables(ctx, node.Namespace(), "-F", cutChain)
}

// Rules returns the node's drop rules as iptables prints them.
func Rules(ctx context.Context, node layout.Node) (string, error) {
	if !hasChain(ctx, node.Namespace()) {
		return "", nil
	}
	return output(ctx, "nsenter", "--net="+layout.NamespacePath(node.Namespace()), "iptables", "-w", "-t", cutTable, "-S", cutChain)
}

func peerRules(peer layout.Node, oneWay bool) [][]string {
	var rules [][]string
	for _, addresses := range []string{peer.IP(), peer.PodCIDR()} {
		rules = append(rules, []string{"-d", addresses})
		if !oneWay {
			rules = append(rules, []string{"-s", addresses})
		}
	}
	return rules
}

func apiRules(node layout.Node, oneWay bool) [][]string {
	port := strconv.Itoa(layout.APIPort)
	rules := [][]string{{"-p", "tcp", "-d", layout.ControlPlaneIP, "--dport", port}}
	if oneWay {
		return rules
	}
	return append(rules,
		[]string{"-p", "tcp", "-s", layout.ControlPlaneIP, "--sport", port},
		[]string{"-p", "tcp", "-s", layout.ControlPlaneIP, "-d", node.IP(), "--dport", "10250"},
		[]string{"-p", "tcp", "-s", node.IP(), "-d", layout.ControlPlaneIP, "--sport", "10250"},
	)
}

func drop(ctx context.Context, namespace string, rules [][]string) error {
	if !hasChain(ctx, namespace) {
		if err := iptables(ctx, namespace, "-N", cutChain); err != nil {
			return err
		}
	}
	for _, hook := range []string{"PREROUTING", "POSTROUTING"} {
		if iptables(ctx, namespace, "-C", hook, "-j", cutChain) == nil {
			continue
		}
		if err := iptables(ctx, namespace, "-I", hook, "1", "-j", cutChain); err != nil {
			return err
		}
	}
	for _, rule := range rules {
		rule = append(rule, "-j", "DROP")
		if iptables(ctx, namespace, append([]string{"-C", cutChain}, rule...)...) == nil {
			continue
		}
		if err := iptables(ctx, namespace, append([]string{"-A", cutChain}, rule...)...); err != nil {
			return fmt.Errorf("cut: %w", err)
		}
	}
	return nil
}

func hasChain(ctx context.Context, namespace string) bool {
	return iptables(ctx, namespace, "-S", cutChain) == nil
}

func iptables(ctx context.Context, namespace string, args ...string) error {
	prefix := []string{"--net=" + layout.NamespacePath(namespace), "iptables", "-w", "-t", cutTable}
	_, err := output(ctx, "nsenter", append(prefix, args...)...)
	return err
}
