package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

func TestAddKeepsASortedSet(t *testing.T) {
	set := []string{"n1", "n3"}
	if got, want := add(set, "n2", "n1"), []string{"n1", "n2", "n3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !slices.Equal(set, []string{"n1", "n3"}) {
		t.Errorf("the argument changed: %v", set)
	}
}

func TestSettingsKnowTheirNodes(t *testing.T) {
	settings := &Settings{Cache: "/c", Version: "v1", Nodes: []string{"n1", "n2"}}
	if _, err := settings.node("n3"); err == nil || !strings.Contains(err.Error(), "only n1, n2") {
		t.Errorf("unknown node: %v", err)
	}
	if node, err := settings.node("n2"); err != nil || node.Index != 2 {
		t.Errorf("known node: %+v, %v", node, err)
	}
}

func TestEnvIsReadByAShell(t *testing.T) {
	var out strings.Builder
	if err := printEnv(&out, [][2]string{{"A", "plain"}, {"B", "it's $HOME"}}); err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command("sh", "-c", out.String()+`printf '%s|%s' "$A" "$B"`).Output()
	if err != nil || string(got) != "plain|it's $HOME" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestKubectlSaysWhenThereIsNoCluster(t *testing.T) {
	dir := t.TempDir()
	cluster := layout.Cluster{State: filepath.Join(dir, "state"), Cache: filepath.Join(dir, "cache"), Version: "v1"}
	script := filepath.Join(dir, "bin", "kubectl")
	if err := writeKubectl(cluster, script); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(script, "version").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make cluster-up") {
		t.Errorf("without a cluster: %q, %v", out, err)
	}
	for file, content := range map[string]string{
		cluster.AdminKubeconfig():  "",
		cluster.Program("kubectl"): "#!/bin/sh\nprintf '%s,' \"$@\"\n",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := "--kubeconfig=" + cluster.AdminKubeconfig() + ",get,two words,"
	if out, err := exec.Command(script, "get", "two words").CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}
