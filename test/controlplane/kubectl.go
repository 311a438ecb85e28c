package controlplane

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Output is what one kubectl command did.
type Output struct {
	Stdout, Stderr string
	// Code is the exit code.
	Code int
}

// Kubectl runs kubectl as a cluster administrator and fails the test when it fails. It returns standard output.
func (p *ControlPlane) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out := p.TryKubectl(t, "", args...)
	if out.Code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// TryKubectl runs kubectl as a cluster administrator with a standard input and returns what it did.
func (p *ControlPlane) TryKubectl(t testing.TB, stdin string, args ...string) Output {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.programs.path("kubectl"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	// A home of its own: the user's kubectl settings and discovery cache stay out.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.Kubeconfig, "HOME="+p.dir,
		"PATH="+filepath.Dir(p.programs.path("kubectl"))+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run kubectl: %v", err)
	}
	return Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}
