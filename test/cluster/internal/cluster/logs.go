package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// reports are what kubectl says about the cluster: file name and arguments.
var reports = []struct{ file, args string }{
	{"all.txt", "get all,pvc,pv,configmaps,endpointslices,leases,certificates,issuers -A -o wide"},
	{"pods.yaml", "get pods -A -o yaml"},
	{"events.txt", "get events -A --sort-by=.lastTimestamp -o wide"},
	{"clusters.yaml", "get postgresclusters -A -o yaml"},
	{"nodes.txt", "describe nodes"},
	{"pods.txt", "describe pods -A"},
	{"volumes.yaml", "get pvc,pv,storageclasses -A -o yaml"},
	{"workloads.yaml", "get statefulsets,deployments,services,endpointslices,poddisruptionbudgets -A -o yaml"},
	{"webhooks.yaml", "get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml"},
}

// CollectLogs copies the logs of all processes and containers into a directory,
// with kubectl's view of everything. What cannot be read is noted there and does
// not stop the rest: it runs after failures.
func CollectLogs(ctx context.Context, dir string) error {
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	nodes, err := settings.nodes()
	if err != nil {
		return err
	}
	cluster := settings.layout()
	problems := []error{
		os.MkdirAll(dir, 0o755),
		copyTree(cluster.Path("logs"), filepath.Join(dir, "processes")),
		copyFile(cluster.AuditLog(), filepath.Join(dir, "audit.log")),
	}
	for _, n := range nodes {
		problems = append(problems, copyTree(n.Path("logs"), filepath.Join(dir, "containers", n.Name)))
	}
	for _, report := range reports {
		problems = append(problems, writeReport(ctx, cluster, filepath.Join(dir, report.file), strings.Fields(report.args)))
	}
	return errors.Join(problems...)
}

// writeReport keeps what kubectl printed even when it failed: an unknown kind
// among others is not worth losing them.
func writeReport(ctx context.Context, cluster layout.Cluster, file string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	args = append([]string{"--kubeconfig=" + cluster.AdminKubeconfig(), "--request-timeout=10s"}, args...)
	out, err := exec.CommandContext(ctx, cluster.Program("kubectl"), args...).CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "\nkubectl: %v\n", err)
	}
	return os.WriteFile(file, out, 0o644)
}

// copyTree copies regular files; the kubelet's logs of pods are such.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, name))
	})
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	if err = os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
