package programs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestKubernetesVersionComesFromGoMod(t *testing.T) {
	for name, tc := range map[string]struct {
		mod, want string
		fails     bool
	}{
		"block":    {mod: "module m\n\nrequire (\n\ta/b v1.0.0\n\tk8s.io/kubernetes v1.37.2 // indirect\n)\n", want: "v1.37.2"},
		"single":   {mod: "module m\nrequire k8s.io/kubernetes v1.2.3\n", want: "v1.2.3"},
		"replaced": {mod: "module m\nreplace (\n\tk8s.io/kubernetes v9.9.9\n)\nrequire k8s.io/kubernetes v1.2.3\n", want: "v1.2.3"},
		"missing":  {mod: "module m\n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), tc.mod)
			got, err := KubernetesVersion(dir)
			if (err != nil) != tc.fails || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestSourceHashFollowsGoFilesButNotTests(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module m\n")
	write(t, filepath.Join(dir, "cmd/x/main.go"), "package main\n")
	hash := func() string {
		sum, err := sourceHash(dir, []string{"cmd/x", "internal/missing"})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := hash()
	write(t, filepath.Join(dir, "cmd/x/main_test.go"), "package main\n")
	write(t, filepath.Join(dir, "cmd/x/notes.md"), "text\n")
	if hash() != first {
		t.Error("a test or a text changed the hash")
	}
	write(t, filepath.Join(dir, "cmd/x/main.go"), "package main // changed\n")
	second := hash()
	if second == first {
		t.Error("a changed source left the hash as it was")
	}
	write(t, filepath.Join(dir, "go.mod"), "module m\nrequire a v1.0.0\n")
	if hash() == second {
		t.Error("a changed requirement left the hash as it was")
	}
}

func TestFindSource(t *testing.T) {
	root := t.TempDir()
	module := filepath.Join(root, "test", "cluster")
	write(t, filepath.Join(root, "go.mod"), "module github.com/acme/pg-operator\n")
	write(t, filepath.Join(module, "go.mod"), "module github.com/acme/pg-operator/test/cluster\n")
	write(t, filepath.Join(module, "cmd/x/main.go"), "package main\n")
	for _, from := range []string{root, module, filepath.Join(module, "cmd", "x")} {
		if got, err := FindSource(from); err != nil || got != module {
			t.Errorf("FindSource(%s) = %q, %v", from, got, err)
		}
	}
	t.Chdir(filepath.Join(module, "cmd"))
	if got, err := FindSource("."); err != nil || got != module {
		t.Errorf("from a relative directory: %q, %v", got, err)
	}
	if _, err := FindSource(t.TempDir()); !errors.Is(err, ErrNoSource) {
		t.Errorf("outside a checkout: %v", err)
	}
}

func TestLinkerFlagsCarryTheVersion(t *testing.T) {
	const pkg = "k8s.io/component-base/version."
	want := "-s -w -X " + pkg + "gitVersion=v1.37.2 -X " + pkg + "gitMajor=1 -X " + pkg + "gitMinor=37"
	if got := ldflags("v1.37.2"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
