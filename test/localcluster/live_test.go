package localcluster

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLive uses the whole API but the operator's part on the real cluster.
func TestLive(t *testing.T) {
	if os.Getenv("PGO_E2E") == "" {
		t.Skip("runs on the local cluster: make test-e2e, or set PGO_E2E=1")
	}
	if reason := Unavailable(); reason != "" {
		t.Skip(reason)
	}
	c, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = c.LoadImage(t.Context(), "no-postgres"); err != nil {
		t.Error(err)
	}
	namespace := c.Namespace(t, "live")
	pod := "{apiVersion: v1, kind: Pod, metadata: {name: root}, spec: {containers: [{name: c, image: registry.local/no-postgres:1}]}}"
	_, err = c.KubectlInput(t.Context(), pod, "apply", "-n", namespace, "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod that may run as root: got %v, want a refusal by Pod Security", err)
	}
	conn, err := c.Dial(t.Context(), "tcp", "kubernetes.default.svc:443")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Only whether somebody answers.
	if err = client.HandshakeContext(t.Context()); err != nil {
		t.Errorf("the API server's ClusterIP does not answer: %v", err)
	}
	dir := t.TempDir()
	if err = c.CollectLogs(t.Context(), dir, namespace); err != nil {
		t.Error(err)
	}
	for _, name := range []string{namespace + ".yaml", "cluster/nodes.txt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s was not collected: %v", name, err)
		}
	}
}
