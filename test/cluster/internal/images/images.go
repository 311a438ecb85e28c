// Package images builds the container images of the local cluster from
// programs compiled here and from distribution packages, without a container
// engine or an image registry.
package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the images Ensure can build.
const (
	Pause        = "pause"
	NoPostgres   = "no-postgres"
	Postgres1518 = "postgres-15.18"
	Postgres1520 = "postgres-15.20"
	Postgres16   = "postgres-16"
	Postgres17   = "postgres-17"
	Postgres18   = "postgres-18"
)

// A recipe knows how to build one image.
type recipe interface {
	// fingerprint is everything the content depends on that is known before
	// the build; a change of it makes cached archives stale.
	fingerprint() string
	// build writes the image to archive. workDir is private to the build and
	// removed after it.
	build(ctx context.Context, b builder, workDir, archive string) error
}

// recipes are in the order in which they are best built.
var recipes = []struct {
	name   string
	recipe recipe
}{
	{Pause, pauseRecipe{references: []string{"registry.local/pause:1"}}},
	{NoPostgres, pauseRecipe{references: []string{"registry.local/no-postgres:1"}}},
	{Postgres1518, debianPostgres{
		suite: "bookworm", major: "15", version: "15.18",
		tags: []string{"15.18"},
	}},
	{Postgres1520, debianPostgres{
		suite: "bookworm", security: true, major: "15", version: "15.20", newer: true,
		tags: []string{"15.20", "15"},
	}},
	{Postgres17, debianPostgres{
		suite: "trixie", security: true, major: "17", version: "17", newer: true,
		tags: []string{"17"},
	}},
	{Postgres16, embeddedPostgres{
		base: Postgres17, version: "16.14.0-beta.17",
		integrity: "sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
		tags:      []string{"16"},
	}},
	{Postgres18, embeddedPostgres{
		base: Postgres17, version: "18.4.0-beta.17",
		integrity: "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
		tags:      []string{"18"},
	}},
}

// Names lists the images Ensure can build.
func Names() []string {
	names := make([]string, 0, len(recipes))
	for _, entry := range recipes {
		names = append(names, entry.name)
	}
	return names
}

// Ensure returns the path of an archive of the named image below cacheDir, as
// `ctr image import` accepts it, and builds it when the cache has none of the
// current recipe. Builds wait for one another, also across processes. progress
// is told what a build is doing.
func Ensure(ctx context.Context, cacheDir, name string, progress func(string)) (string, error) {
	b := builder{dir: filepath.Join(cacheDir, "images"), progress: progress}
	_, archive, err := b.lookup(name)
	if err != nil || exists(archive) {
		return archive, err
	}
	if err = os.MkdirAll(b.dir, 0o755); err != nil {
		return "", fmt.Errorf("image cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(b.dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	return b.ensure(ctx, name)
}

// builder makes images, one after another, in the directory dir.
type builder struct {
	dir      string
	progress func(string)
}

// lookup finds the recipe of an image and where its archive belongs.
func (b builder) lookup(name string) (chosen recipe, archive string, err error) {
	chosen, err = find(name)
	if err != nil {
		return nil, "", err
	}
	return chosen, filepath.Join(b.dir, name+"-"+hash(name, chosen.fingerprint())+".tar"), nil
}

// ensure is Ensure for callers that hold the lock of the directory.
func (b builder) ensure(ctx context.Context, name string) (string, error) {
	chosen, archive, err := b.lookup(name)
	if err != nil || exists(archive) {
		return archive, err
	}
	if err := b.build(ctx, name, chosen, archive); err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	return archive, nil
}

func find(name string) (recipe, error) {
	for _, entry := range recipes {
		if entry.name == name {
			return entry.recipe, nil
		}
	}
	return nil, fmt.Errorf("no image %q: the known ones are %s", name, strings.Join(Names(), ", "))
}

// build works in a scratch directory and renames the result into place, so that
// an archive with its final name is always whole.
func (b builder) build(ctx context.Context, name string, chosen recipe, archive string) error {
	workDir, err := os.MkdirTemp(b.dir, "."+name+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(workDir) }()
	started := time.Now()
	b.progress("Building image " + name)
	partial := filepath.Join(workDir, "image.tar")
	if err = chosen.build(ctx, b, workDir, partial); err != nil {
		return err
	}
	info, err := os.Stat(partial)
	if err != nil {
		return err
	}
	if err := b.removeStale(name); err != nil {
		return err
	}
	if err := os.Rename(partial, archive); err != nil {
		return err
	}
	b.progress(fmt.Sprintf("Built image %s: %d MiB in %s", name, info.Size()>>20, time.Since(started).Round(100*time.Millisecond)))
	return nil
}

// removeStale removes the archives that older recipes of the image made.
func (b builder) removeStale(name string) error {
	stale, err := filepath.Glob(filepath.Join(b.dir, name+"-"+strings.Repeat("?", hashLength)+".tar"))
	if err != nil {
		return err
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// hashLength is the number of characters of a recipe's hash in file names.
const hashLength = 12

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:hashLength]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock takes an exclusive lock on the file at path, which it creates; the lock
// ends with the process if nothing else ends it.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("image cache: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another image build: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
