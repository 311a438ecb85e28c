package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Tree returns the directory of a PostgreSQL image's file system, for tests
// that run its server without a cluster. It builds the image and unpacks it
// where the cache lacks them; whoever uses the directory leaves it unchanged.
func Tree(ctx context.Context, cacheDir, name string, progress func(string)) (string, error) {
	archive, err := Ensure(ctx, cacheDir, name, progress)
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cacheDir, "trees", name)
	tree := filepath.Join(parent, strings.TrimSuffix(filepath.Base(archive), ".tar"))
	if exists(tree) {
		return tree, nil
	}
	if err = os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("cache of unpacked images: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(cacheDir, "trees", ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(tree) {
		return tree, nil
	}
	progress("Unpacking image " + name)
	return tree, unpack(ctx, archive, parent, tree)
}

// unpack replaces everything in parent by the file system of an archive. It
// works beside the final place, so that a tree there is always whole.
func unpack(ctx context.Context, archive, parent, tree string) (err error) {
	image, _, err := openPostgres(archive)
	if err != nil {
		return fmt.Errorf("read %s: %w", archive, err)
	}
	if err = os.RemoveAll(parent); err != nil {
		return err
	}
	partial := filepath.Join(parent, "partial")
	if err = os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	content := mutate.Extract(image)
	defer func() { err = errors.Join(err, content.Close()) }()
	if err = untar(ctx, partial, content); err != nil {
		return err
	}
	return os.Rename(partial, tree)
}
