package node

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/pki"
)

func render(t *testing.T, name string) string {
	t.Helper()
	cluster := layout.New("/cache", "v1.0.0")
	node, err := cluster.Node("n2")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := templates[name].Execute(&text, newValues(cluster, node, authority)); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestEveryNodeHasItsOwnPlaces(t *testing.T) {
	for name, wants := range map[string][]string{
		"containerd.toml": {
			`root = "/cache/containerd/n2"`, `address = "` + layout.StateDir + `/n2/containerd.sock"`,
			"restrict_oom_score_adj = true", "netns_mounts_under_state_dir = true", `sandbox_image = "registry.local/pause:1"`,
		},
		"kubelet.yaml": {
			"cgroupRoot: /pgo-n2", "podLogsDir: " + layout.StateDir + "/n2/logs", "address: 10.87.0.12", "failCgroupV1: false",
		},
		"proxy.yaml": {"hostnameOverride: n2", "mode: iptables"},
	} {
		text := render(t, name)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
	}
}

// TestDeadSockets are told from those that somebody listens on.
func TestDeadSockets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"alive", "dead"} {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		listener.SetUnlinkOnClose(false)
		if name == "dead" {
			_ = listener.Close()
		} else {
			defer func() { _ = listener.Close() }()
		}
	}
	dead, err := deadSockets(dir)
	if want := []string{filepath.Join(dir, "dead")}; err != nil || !slices.Equal(dead, want) {
		t.Errorf("%v, %v; want %v", dead, err, want)
	}
}

func TestConfigurationParses(t *testing.T) {
	for _, name := range []string{"kubelet.yaml", "proxy.yaml"} {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(render(t, name)), &object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var network struct {
		Plugins []struct {
			IPAM struct {
				Ranges [][]struct{ Subnet, Gateway string }
			}
		}
	}
	if err := json.Unmarshal([]byte(render(t, "cni/net.d/10-pods.conflist")), &network); err != nil {
		t.Fatal(err)
	}
	if got := network.Plugins[0].IPAM.Ranges[0][0]; got.Subnet != "10.89.0.0/16" || got.Gateway != "10.89.0.1" {
		t.Errorf("range %+v", got)
	}
}

func TestParseHierarchies(t *testing.T) {
	hybrid := "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	got := parseHierarchies(hybrid)
	if len(got) != 2 || got[0].path != "/sys/fs/cgroup/cpuset" || !slices.Contains(got[0].options, "cpuset") || got[0].unified || !got[1].unified {
		t.Errorf("hybrid: %+v", got)
	}
	if got := parseHierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"); len(got) != 1 || !got[0].unified {
		t.Errorf("unified: %+v", got)
	}
}

func TestParseMountsFindsOnlyWhatIsBelow(t *testing.T) {
	info := "21 1 8:1 / / rw - ext4 /dev/a rw\n" +
		"22 21 8:1 / /var/lib/x/a rw - ext4 /dev/a rw\n" +
		"23 22 8:1 / /var/lib/x/a/b\\040c rw - tmpfs none rw\n" +
		"24 21 8:1 / /var/lib/xy rw - tmpfs none rw\n"
	want := []string{"/var/lib/x/a/b c", "/var/lib/x/a"}
	if got := parseMounts(info, "/var/lib/x"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOwnResults(t *testing.T) {
	names := []string{"pgo-n1-aa-eth0", "cni-loopback-aa-lo", "cni-loopback-bb-lo", "pgo-n11-cc-eth0", "other-aa-eth0"}
	want := []string{"pgo-n1-aa-eth0", "cni-loopback-aa-lo"}
	if got := ownResults(names, "pgo-n1"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestImportIsNeededWhenArchiveOrStoreChanged(t *testing.T) {
	dir := t.TempDir()
	archive, stamp := filepath.Join(dir, "a.tar"), filepath.Join(dir, "a.tar.json")
	if err := os.WriteFile(archive, []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(archive)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(imported{Size: info.Size(), Modified: info.ModTime(), Images: []string{"x:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if upToDate(stamp, info, []string{"x:1"}) {
		t.Error("up to date though never imported")
	}
	if err = os.WriteFile(stamp, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if !upToDate(stamp, info, []string{"y:1", "x:1"}) {
		t.Error("not up to date though nothing changed")
	}
	if upToDate(stamp, info, []string{"y:1"}) {
		t.Error("up to date though the store lost the image")
	}
	if err = os.Chtimes(archive, time.Time{}, info.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(archive); err != nil {
		t.Fatal(err)
	}
	if upToDate(stamp, info, []string{"x:1"}) {
		t.Error("up to date though the archive changed")
	}
}

func TestImportedNames(t *testing.T) {
	out := "unpacking docker.io/library/postgres:15 (sha256:ab)...done\nunpacking docker.io/library/postgres:15.20 (sha256:ab)...done\n"
	want := []string{"docker.io/library/postgres:15", "docker.io/library/postgres:15.20"}
	if got := importedNames(out); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
