package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// collectedKinds are dumped of a namespace. Secrets are left out on purpose.
const collectedKinds = "statefulsets,pods,persistentvolumeclaims,services,endpointslices,configmaps," +
	"leases,certificates,certificaterequests,poddisruptionbudgets,resourcequotas"

// CollectLogs writes what explains a failure into the directory dir: objects
// and events of the given namespaces, with who owns which field, and all that
// the launcher collects: logs of every container and of the cluster's programs.
// What cannot be collected is left out and named in the error.
func (c *Cluster) CollectLogs(ctx context.Context, dir string, namespaces ...string) error {
	var failed []error
	save := func(name string, args ...string) {
		text, err := c.Kubectl(ctx, args...)
		if err != nil && !strings.Contains(err.Error(), "doesn't have a resource type") {
			failed = append(failed, err)
		}
		if text == "" {
			return
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			failed = append(failed, err)
		}
	}
	for _, namespace := range namespaces {
		save(namespace+".yaml", "get", collectedKinds, "-n", namespace, "-o", "yaml", "--show-managed-fields")
		// By itself: kubectl prints nothing at all when it does not know one of the kinds.
		save(namespace+"-clusters.yaml", "get", "postgresclusters", "-n", namespace, "-o", "yaml", "--show-managed-fields")
		save(namespace+"-events.txt", "get", "events", "-n", namespace, "--sort-by=.metadata.creationTimestamp")
	}
	if _, err := c.run(ctx, nil, c.launcher, "logs", filepath.Join(dir, "cluster")); err != nil {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// names lists the objects of a kind in a namespace; nothing when that fails.
func (c *Cluster) names(ctx context.Context, kind, namespace string) []string {
	text, err := c.Kubectl(ctx, "get", kind, "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return nil
	}
	return strings.Fields(text)
}

// artifacts is a fresh directory below $ARTIFACTS, or below the system's
// directory for temporary files.
func artifacts(name string) (string, error) {
	base := os.Getenv("ARTIFACTS")
	if base != "" {
		if err := os.MkdirAll(base, 0o755); err != nil {
			return "", fmt.Errorf("ARTIFACTS: %w", err)
		}
	}
	return os.MkdirTemp(base, strings.ReplaceAll(name, "/", "-")+"-")
}
