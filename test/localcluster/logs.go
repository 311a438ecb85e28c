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
const collectedKinds = "postgresclusters,statefulsets,pods,persistentvolumeclaims,services,endpointslices,configmaps," +
	"leases,certificates,certificaterequests,poddisruptionbudgets,resourcequotas"

// CollectLogs writes what explains a failure below dir: objects, events and
// logs of the given namespaces, and the logs of the cluster's own programs.
// What cannot be collected is left out and named in the error.
func (c *Cluster) CollectLogs(ctx context.Context, dir string, namespaces ...string) error {
	var failed []error
	save := func(name string, args ...string) {
		text, err := c.Kubectl(ctx, args...)
		if err != nil {
			failed = append(failed, err)
		}
		if text == "" {
			return
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			failed = append(failed, err)
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			failed = append(failed, err)
		}
	}
	save("nodes.yaml", "get", "nodes,persistentvolumes,storageclasses", "-o", "yaml")
	for _, namespace := range namespaces {
		save(namespace+"/objects.yaml", "get", collectedKinds, "-n", namespace, "-o", "yaml", "--show-managed-fields")
		save(namespace+"/events.txt", "get", "events", "-n", namespace, "--sort-by=.metadata.creationTimestamp")
		for _, pod := range c.names(ctx, "pods", namespace) {
			save(namespace+"/"+pod+".log", "logs", "-n", namespace, pod, "--all-containers", "--prefix", "--timestamps")
			save(namespace+"/"+pod+".previous.log", "logs", "-n", namespace, pod, "--all-containers", "--prefix", "--previous", "--ignore-errors")
		}
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
