package images

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The program travels inside the launcher, which can then build it wherever it
// is started from.
//
//go:embed pause/main.go
var pauseSource []byte

// pauseRecipe makes an image whose only content is the pause program.
type pauseRecipe struct {
	references []string
}

func (r pauseRecipe) fingerprint() string {
	return strings.Join(append(r.references, string(pauseSource), runtime.Version()), "\x00")
}

func (r pauseRecipe) build(ctx context.Context, _ builder, workDir, archive string) error {
	source := filepath.Join(workDir, "main.go")
	if err := os.WriteFile(source, pauseSource, 0o644); err != nil {
		return err
	}
	binary := filepath.Join(workDir, "pause")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "main.go")
	command.Dir = workDir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the pause program: %w: %s", err, output)
	}
	return writeProgram(binary, "pause", r.references, archive, nil)
}
