package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// open reads one image of an archive back.
func open(t *testing.T, archive, reference string) (v1.Image, map[string]*tar.Header) {
	t.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatalf("%s in %s: %v", reference, archive, err)
	}
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	files := map[string]*tar.Header{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return image, files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = header
	}
}

// compile makes a small static program.
func compile(t *testing.T, path string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./pause")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestFromBinary(t *testing.T) {
	dir := t.TempDir()
	binary, archive := filepath.Join(dir, "program"), filepath.Join(dir, "image.tar")
	compile(t, binary)
	const reference = "registry.local/pg-operator:dev"
	if err := FromBinary(binary, reference, archive); err != nil {
		t.Fatal(err)
	}
	image, files := open(t, archive, reference)
	if len(files) != 1 || files["pg-operator"] == nil || files["pg-operator"].Mode != 0o755 {
		t.Errorf("files %v, want only an executable pg-operator", files)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config; !slices.Equal(got.Entrypoint, []string{"/pg-operator"}) || got.User != "65532:65532" || len(got.Labels) == 0 {
		t.Errorf("configuration %+v", got)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("platform %s/%s", config.OS, config.Architecture)
	}

	again := filepath.Join(dir, "again.tar")
	if err := FromBinary(binary, reference, again); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(archive)
	second, _ := os.ReadFile(again)
	if !bytes.Equal(first, second) {
		t.Error("the same binary gave two different archives")
	}
}

func TestFromBinaryRefuses(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "program")
	compile(t, binary)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ binary, reference, want string }{
		"reference":      {binary, "Not A Reference", `"Not A Reference"`},
		"not a program":  {script, "a:b", "GOOS=linux"},
		"needs a loader": {"/bin/sh", "a:b", "CGO_ENABLED=0"},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			err := FromBinary(tc.binary, tc.reference, filepath.Join(dir, "image.tar"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %s", err, tc.want)
			}
		})
	}
	if err := FromBinary(filepath.Join(dir, "absent"), "a:b", filepath.Join(dir, "b.tar")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}

func TestEnsurePauseIsCached(t *testing.T) {
	cache := t.TempDir()
	var lines []string
	progress := func(line string) { lines = append(lines, line) }
	stale := filepath.Join(cache, "images", "pause-0123456789ab.tar")
	other := filepath.Join(cache, "images", "pause-other-0123456789ab.tar")
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stale, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := Ensure(t.Context(), cache, Pause, progress)
	if err != nil {
		t.Fatal(err)
	}
	if _, files := open(t, archive, "registry.local/pause:1"); files["pause"] == nil {
		t.Errorf("files %v, want pause", files)
	}
	if exists(stale) || !exists(other) {
		t.Errorf("stale archive there: %v; archive of another image there: %v", exists(stale), exists(other))
	}
	said := len(lines)
	if said == 0 {
		t.Error("the build reported no progress")
	}
	again, err := Ensure(t.Context(), cache, Pause, progress)
	if err != nil || again != archive || len(lines) != said {
		t.Errorf("second call: %s, %v, new lines %v; want the cached archive, silently", again, err, lines[said:])
	}
}

func TestEnsureUnknown(t *testing.T) {
	_, err := Ensure(t.Context(), t.TempDir(), "postgres-9", func(string) {})
	if err == nil || !strings.Contains(err.Error(), Postgres17) {
		t.Errorf("error %v, want the known names", err)
	}
}

func TestEnsureWaitsForOtherBuilds(t *testing.T) {
	cache := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cache, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), filepath.Join(cache, "images", ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ensure(ctx, cache, Pause, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v while another build runs, want the context's", err)
	}
}

func TestFingerprintsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, image := range Names() {
		_, archive, err := builder{}.lookup(image)
		if err != nil {
			t.Fatal(err)
		}
		if other, found := seen[archive]; found {
			t.Errorf("%s and %s share the archive %s", image, other, archive)
		}
		seen[archive] = image
	}
}
