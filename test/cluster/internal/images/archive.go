package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// NonRoot is the numeric user of images that need no particular one.
const NonRoot = "65532:65532"

// FromBinary writes an image that holds one static program, the binary, as
// /pg-operator on an otherwise empty file system. It runs as NonRoot. The
// archive is a Docker archive with the given reference. A binary that is not a
// static Linux program is refused: nothing in the image could load it.
func FromBinary(binary, reference, archive string) error {
	return writeProgram(binary, "pg-operator", []string{reference}, archive, map[string]string{
		"org.opencontainers.image.title":       "pg-operator",
		"org.opencontainers.image.description": "PostgreSQL clusters on Kubernetes: operator and instance agent",
		"org.opencontainers.image.ref.name":    reference,
	})
}

// writeProgram writes an image of one static program in the root directory.
func writeProgram(binary, program string, references []string, archive string, labels map[string]string) error {
	architecture, err := architectureOf(binary)
	if err != nil {
		return err
	}
	layer, err := programLayer(binary, program)
	if err != nil {
		return err
	}
	return write(archive, references, empty.Image, architecture, v1.Config{
		Entrypoint: []string{"/" + program},
		User:       NonRoot,
		WorkingDir: "/",
		Labels:     labels,
	}, layer)
}

// architectureOf returns the Go name of the architecture that a static Linux
// program is for.
func architectureOf(binary string) (string, error) {
	file, err := os.Open(binary)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	program, err := elf.NewFile(file)
	if err != nil {
		return "", fmt.Errorf("%s is not a Linux program (%w); build it with GOOS=linux", binary, err)
	}
	for _, header := range program.Progs {
		if header.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is dynamically linked and cannot run on an empty file system; build it with CGO_ENABLED=0", binary)
		}
	}
	switch program.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("%s is for %s; images are made for amd64 and arm64", binary, program.Machine)
	}
}

func programLayer(binary, program string) (v1.Layer, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: program, Mode: 0o755, Size: int64(len(content)), Format: tar.FormatPAX,
	}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return layerOf(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
}

// layerOf trades size for time: the archives stay on this machine.
func layerOf(open tarball.Opener) (v1.Layer, error) {
	return tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.BestSpeed))
}

// write puts the layers on top of base, under the configuration and all the
// references, into a Docker archive.
func write(archive string, references []string, base v1.Image, architecture string, config v1.Config, layers ...v1.Layer) error {
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return fmt.Errorf("append layers: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read image configuration: %w", err)
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config = architecture, "linux", config
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		return fmt.Errorf("set image configuration: %w", err)
	}
	tags := make(map[name.Tag]v1.Image, len(references))
	for _, reference := range references {
		tag, err := name.NewTag(reference)
		if err != nil {
			return fmt.Errorf("image reference %q: %w; use a form such as registry.local/pg-operator:dev", reference, err)
		}
		tags[tag] = image
	}
	if err := tarball.MultiWriteToFile(archive, tags); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}
