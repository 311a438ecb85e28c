package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/netns"
	"github.com/acme/pg-operator/test/cluster/internal/process"
	"github.com/acme/pg-operator/test/cluster/internal/programs"
)

// smokePod meets Pod Security "restricted".
const smokePod = `
apiVersion: v1
kind: Namespace
metadata:
  name: smoke
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: Pod
metadata: {name: pause, namespace: smoke}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 999, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: pause
    image: registry.local/pause:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// TestSmoke takes a whole cluster through its life. It removes the machine's
// cluster, so it runs only when PGO_CLUSTER_SMOKE=1 asks for it.
func TestSmoke(t *testing.T) {
	if os.Getenv("PGO_CLUSTER_SMOKE") != "1" {
		t.Skip("set PGO_CLUSTER_SMOKE=1, as root: it removes the machine's local cluster")
	}
	out := testWriter{t}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	source, err := programs.FindSource(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(ctx, out); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(context.Background(), out); err != nil {
			t.Error(err)
		}
		for _, what := range leftovers(t) {
			t.Errorf("left behind: %s", what)
		}
	})
	script := filepath.Join(t.TempDir(), "kubectl")
	up := func(nodes ...string) {
		t.Helper()
		if err := Up(ctx, Options{Source: source, Nodes: nodes, Kubectl: script, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	up()
	kubectl := func(input string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(ctx, script, args...)
		command.Stdin = strings.NewReader(input)
		answer, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v: %s", args, err, answer)
		}
		return strings.TrimSpace(string(answer))
	}
	kubectl(smokePod, "apply", "-f", "-")
	kubectl("", "wait", "-n", "smoke", "pod/pause", "--for=condition=Ready", "--timeout=60s")
	checkReachable(t, kubectl("", "get", "-n", "smoke", "pod/pause", "-o", "jsonpath={.status.podIP}"))

	// A crash half-way, with the pid file of one process lost.
	before := kubectl("", "get", "-n", "smoke", "pod/pause", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	table := process.NewTable(must(loadSettings()).layout())
	for _, name := range []string{"etcd", "kube-apiserver", "n1-containerd", "n1-kubelet", "gateway"} {
		record, known := table.Get(name)
		if !known {
			t.Fatalf("%s has no pid file", name)
		}
		if err := record.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(table.Pids, "kube-scheduler.pid")); err != nil {
		t.Fatal(err)
	}
	up()
	after := kubectl("", "get", "-n", "smoke", "pod/pause", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	if before != after {
		t.Errorf("the repair replaced the container %s by %s", before, after)
	}
	checkReachable(t, kubectl("", "get", "-n", "smoke", "pod/pause", "-o", "jsonpath={.status.podIP}"))

	up("n2")
	checkCuts(ctx, t)
}

// checkCuts cuts each way there is, and sees that exactly this is lost, and that
// healing brings it back.
func checkCuts(ctx context.Context, t *testing.T) {
	t.Helper()
	const (
		peer    = "10.89.0.1:1" // nothing listens: an answer is a refusal
		api     = layout.ControlPlaneIP + ":6443"
		service = layout.APIServiceIP + ":443"
	)
	for _, tc := range []struct {
		name       string
		node, from string
		oneWay     bool
		loss       int
		peer, api  bool // n1 reaches n2; n2 reaches the API server
	}{
		{name: "cable", node: "n2"},
		{name: "the first node's cable", node: "n1", api: true},
		{name: "from a node", node: "n2", from: "n1", api: true},
		{name: "from a node one way", node: "n1", from: "n2", oneWay: true, api: true},
		{name: "from the API server", node: "n2", from: FromAPI, peer: true},
		{name: "by loss", node: "n2", loss: 99}, // the few packets of an attempt are lost all but surely
	} {
		cut := func() error { return Cut(ctx, tc.node, tc.from, tc.oneWay) }
		if tc.loss > 0 {
			cut = func() error { return Lose(ctx, tc.node, tc.loss) }
		}
		if err := cut(); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if got := answers("pgo-n1", peer); got != tc.peer {
			t.Errorf("cut %s: n1 reaches n2: %v, want %v", tc.name, got, tc.peer)
		}
		if got := answers("pgo-n2", api); got != tc.api {
			t.Errorf("cut %s: n2 reaches the API server: %v, want %v", tc.name, got, tc.api)
		}
		if !answers(layout.ControlPlaneNamespace, service) {
			t.Errorf("cut %s: the control plane lost the Services", tc.name)
		}
		if err := Heal(ctx, tc.node); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if !answers("pgo-n1", peer) || !answers("pgo-n2", api) {
			t.Errorf("cut %s: not healed", tc.name)
		}
	}
}

// answers reports whether an address accepts or refuses a connection.
func answers(namespace, address string) bool {
	err := netns.Do(namespace, func() error {
		connection, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err
	})
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}

// checkReachable goes through the SOCKS proxy to a Service by name and by
// ClusterIP, and to a pod, which refuses because pause does not listen.
func checkReachable(t *testing.T, podIP string) {
	t.Helper()
	dialer, err := proxy.SOCKS5("tcp", must(loadSettings()).SOCKS, nil, &net.Dialer{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"kubernetes.default.svc:443", net.JoinHostPort(layout.APIServiceIP, "443"), net.JoinHostPort(layout.DNSServiceIP, "53")} {
		connection, dialErr := dialer.Dial("tcp", address)
		if dialErr != nil {
			t.Errorf("%s: %v", address, dialErr)
			continue
		}
		_ = connection.Close()
	}
	err = netns.Do("pgo-n1", func() error {
		_, dialErr := net.DialTimeout("tcp", net.JoinHostPort(podIP, "1"), 5*time.Second)
		return dialErr
	})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("pod %s: %v; want a refused connection", podIP, err)
	}
}

// leftovers looks for everything that a cluster makes on a machine.
func leftovers(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, record := range process.Marked() {
		found = append(found, fmt.Sprintf("process %d", record.PID))
	}
	for _, pattern := range []string{
		layout.StateDir, "/run/netns/pgo-*", "/sys/fs/cgroup/pgo-*", "/sys/fs/cgroup/*/pgo-*",
		"/var/lib/cni/results/pgo-*", "/var/lib/cni/results/cni-loopback-*", "/run/containerd/s/*",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	cache := must(layout.CacheDir())
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/mountinfo")))) {
		if strings.Contains(line, layout.StateDir) || strings.Contains(line, " "+cache) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	for _, file := range must(filepath.Glob("/sys/block/loop*/loop/backing_file")) {
		if data, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(data), layout.StateDir) {
			found = append(found, "loop device of "+strings.TrimSpace(string(data)))
		}
	}
	for _, link := range must(filepath.Glob("/var/log/containers/*")) {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, layout.StateDir) {
			found = append(found, link)
		}
	}
	return found
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(data []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(data), "\n"))
	return len(data), nil
}
