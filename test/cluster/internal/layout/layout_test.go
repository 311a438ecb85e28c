package layout

import (
	"net/netip"
	"testing"
)

func TestNodesHaveDistinctAddressesInTheClusterRange(t *testing.T) {
	cluster := New("/cache", "v1.0.0")
	clusterRange := netip.MustParsePrefix(ClusterCIDR)
	var seen []netip.Prefix
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		node, err := cluster.Node(name)
		if err != nil {
			t.Fatal(err)
		}
		pods := netip.MustParsePrefix(node.PodCIDR())
		if !clusterRange.Contains(pods.Addr()) || !clusterRange.Overlaps(pods) {
			t.Errorf("%s: pods %s outside %s", name, pods, clusterRange)
		}
		if !pods.Contains(netip.MustParseAddr(node.Gateway())) {
			t.Errorf("%s: gateway %s outside %s", name, node.Gateway(), pods)
		}
		for _, other := range seen {
			if other.Overlaps(pods) {
				t.Errorf("%s: %s overlaps %s", name, pods, other)
			}
		}
		seen = append(seen, pods)
		if got := len(node.ContainerdSocket()); got > 100 {
			t.Errorf("socket path has %d bytes", got)
		}
	}
}

func TestNodeNames(t *testing.T) {
	for name, want := range map[string]bool{"n1": true, "n4": true, "n5": false, "n0": false, "node1": false, "": false, "n11": false} {
		if _, err := New("/c", "v1").Node(name); (err == nil) != want {
			t.Errorf("Node(%q): %v", name, err)
		}
	}
}

func TestCacheDirHonoursTheEnvironment(t *testing.T) {
	t.Setenv("PG_OPERATOR_CACHE", "/somewhere/else")
	if dir, err := CacheDir(); err != nil || dir != "/somewhere/else" {
		t.Errorf("CacheDir() = %q, %v", dir, err)
	}
	t.Setenv("PG_OPERATOR_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	if dir, err := CacheDir(); err != nil || dir != "/xdg/pg-operator" {
		t.Errorf("CacheDir() = %q, %v", dir, err)
	}
}
