package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KubernetesVersion is the version of Kubernetes that the module at source
// requires.
func KubernetesVersion(source string) (string, error) {
	versions, err := requirements(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	version := versions[kubernetes]
	if version == "" {
		return "", fmt.Errorf("%s/go.mod does not require %s", source, kubernetes)
	}
	return version, nil
}

// requirements returns the version of each module that a go.mod file requires.
// Required versions are the selected ones here: go mod tidy writes them so.
func requirements(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	inside := false
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "//")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "require" && fields[1] == "(":
			inside = true
		case len(fields) == 1 && fields[0] == ")":
			inside = false
		case len(fields) == 3 && fields[0] == "require":
			versions[fields[1]] = fields[2]
		case len(fields) == 2 && inside:
			versions[fields[0]] = fields[1]
		}
	}
	return versions, nil
}

func modulePath(data []byte) string {
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "module" {
			return fields[1]
		}
	}
	return ""
}

// sourceHash covers go.mod and the Go files of directories, tests excepted.
func sourceHash(source string, dirs []string) (string, error) {
	sum := sha256.New()
	add := func(file string) error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, name, len(data))
		sum.Write(data)
		return nil
	}
	if err := add(filepath.Join(source, "go.mod")); err != nil {
		return "", err
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(source, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go" {
				return err
			}
			return add(path)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
