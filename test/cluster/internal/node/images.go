package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/acme/pg-operator/test/cluster/internal/files"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// imported remembers what an archive held when it was imported.
type imported struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Images   []string  `json:"images"`
}

// Import puts an image archive into the node's image store. It reports false
// when the store has the archive's images already.
func Import(ctx context.Context, node layout.Node, archive string) (bool, error) {
	info, err := os.Stat(archive)
	if err != nil {
		return false, err
	}
	stamp := filepath.Join(node.ContainerdRoot(), "imported", filepath.Base(archive)+".json")
	present, err := ctr(ctx, node, "images", "ls", "-q")
	if err != nil {
		return false, err
	}
	if upToDate(stamp, info, strings.Fields(present)) {
		return false, nil
	}
	out, err := ctr(ctx, node, "images", "import", archive)
	if err != nil {
		return false, fmt.Errorf("image archive %s: %w", archive, err)
	}
	names := importedNames(out)
	if len(names) == 0 {
		return false, fmt.Errorf("image archive %s holds no image with a name", archive)
	}
	data, err := json.Marshal(imported{Size: info.Size(), Modified: info.ModTime(), Images: names})
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(stamp), 0o755); err != nil {
		return false, err
	}
	return true, files.Write(stamp, data, 0o644)
}

func upToDate(stamp string, info os.FileInfo, present []string) bool {
	data, err := os.ReadFile(stamp)
	if err != nil {
		return false
	}
	var old imported
	if json.Unmarshal(data, &old) != nil || old.Size != info.Size() || !old.Modified.Equal(info.ModTime()) {
		return false
	}
	for _, image := range old.Images {
		if !slices.Contains(present, image) {
			return false
		}
	}
	return len(old.Images) > 0
}

// importedNames reads ctr's report: "unpacking NAME (DIGEST)...done".
func importedNames(out string) []string {
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "unpacking" {
			names = append(names, fields[1])
		}
	}
	return names
}

// RuntimeReady succeeds when the node's containerd serves.
func RuntimeReady(ctx context.Context, node layout.Node) error {
	_, err := ctr(ctx, node, "version")
	return err
}

// Purge removes all containers from the runtime's records, with their writable
// layers. Their processes must be gone or going.
func Purge(ctx context.Context, node layout.Node) error {
	tasks, err := ctr(ctx, node, "tasks", "ls", "-q")
	if err != nil {
		return err
	}
	if ids := strings.Fields(tasks); len(ids) > 0 {
		if _, err = ctr(ctx, node, append([]string{"tasks", "rm", "-f"}, ids...)...); err != nil {
			return err
		}
	}
	containers, err := ctr(ctx, node, "containers", "ls", "-q")
	if err != nil {
		return err
	}
	if ids := strings.Fields(containers); len(ids) > 0 {
		if _, err := ctr(ctx, node, append([]string{"containers", "rm"}, ids...)...); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs containerd's own client in the namespace that Kubernetes uses.
func ctr(ctx context.Context, node layout.Node, args ...string) (string, error) {
	args = append([]string{"--address", node.ContainerdSocket(), "--namespace", "k8s.io"}, args...)
	command := exec.CommandContext(ctx, "ctr", args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
