package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/acme/pg-operator/test/localcluster"
)

func pages(t *testing.T) []page {
	t.Helper()
	all, err := guide()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestScript(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"only marked blocks": {"```sh\nno\n```\ntext\n```sh test\nyes\n```\n", "yes\n"},
		"blocks in order":    {"```sh test\none\n```\n```sh test\ntwo\n```\n", "one\ntwo\n"},
		"none":               {"text\n", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := (page{text: tc.text}).script(); got != tc.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	if _, err := (page{text: "```sh test\nyes\n"}).script(); err == nil {
		t.Error("a block that is not closed is no error")
	}
}

func TestGuideListsEveryPage(t *testing.T) {
	listed := map[string]bool{"docs/README.md": true}
	for _, p := range pages(t) {
		listed[p.path] = true
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if path := "docs/" + filepath.Base(file); !listed[path] {
			t.Errorf("docs/README.md does not link to %s", path)
		}
	}
}

func TestLinks(t *testing.T) {
	for _, p := range append(pages(t), readme(t)) {
		for _, target := range p.links() {
			path := filepath.Join(root, filepath.Dir(p.path), target)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", p.path, target, err)
			}
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var exist []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(string(makefile), -1) {
		exist = append(exist, match[1])
	}
	named := 0
	for _, p := range append(pages(t), readme(t)) {
		for _, target := range p.makeTargets() {
			named++
			if !slices.Contains(exist, target) {
				t.Errorf("%s names `make %s`, which the Makefile does not have", p.path, target)
			}
		}
	}
	if named == 0 {
		t.Error("no page names a target of make: the pattern finds nothing")
	}
}

// TestCommands runs the marked commands of all pages, in the order of the
// guide, as one user would: a page starts from what the pages before it left.
func TestCommands(t *testing.T) {
	if os.Getenv("PGO_E2E") == "" {
		t.Skip("the guide's commands run on the local cluster: make test-e2e, or set PGO_E2E=1")
	}
	if reason := localcluster.Unavailable(); reason != "" {
		t.Skip(reason)
	}
	cluster, err := localcluster.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = cluster.LoadImage(t.Context(), "postgres-16"); err != nil {
		t.Fatal(err)
	}
	if err = cluster.DeployOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	home, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	// The namespace that the guide calls shop, so that a demo in that one is left alone.
	namespace := cluster.Namespace(t, "docs")
	kubectl := writeKubectl(t, home, namespace)
	for _, p := range pages(t) {
		script, err := p.script()
		if err != nil {
			t.Fatal(err)
		}
		if script == "" {
			continue
		}
		passed := t.Run(filepath.Base(p.path), func(t *testing.T) {
			command := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", script)
			command.Dir = home
			command.Env = append(os.Environ(), "PATH="+kubectl+":"+os.Getenv("PATH"))
			out, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", p.path, err, out)
			}
		})
		if !passed {
			return // The next page starts from what this one should have left.
		}
	}
}

// writeKubectl makes a directory with a kubectl that reads the namespace shop as another one, in arguments, files and
// standard input alike, and returns it. The namespace exists already, so its creation is left out.
func writeKubectl(t *testing.T, home, namespace string) string {
	t.Helper()
	dir := t.TempDir()
	script := strings.NewReplacer("HOME", filepath.Join(home, "bin", "kubectl"), "NAMESPACE", namespace).Replace(`#!/usr/bin/env bash
set -euo pipefail
[[ "$*" != "create namespace shop" ]] || exit 0
args=()
while [[ $# -gt 0 ]]; do
	case $1 in
	shop) args+=("NAMESPACE") ;;
	-f)
		shift
		file=$(mktemp "${0%/*}/manifest.XXXXXX")
		if [[ $1 == - ]]; then cat; else cat "$1"; fi | sed 's/namespace: shop/namespace: NAMESPACE/' >"$file"
		args+=(-f "$file")
		;;
	*) args+=("$1") ;;
	esac
	shift
done
exec HOME "${args[@]}"
`)
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readme(t *testing.T) page {
	t.Helper()
	p, err := read("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
