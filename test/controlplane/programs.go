package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// assetsEnv names the directory of etcd, kube-apiserver and kubectl, as for every project that uses envtest.
const assetsEnv = "KUBEBUILDER_ASSETS"

// programs locates what the control plane is made of.
type programs struct {
	bin, cached string
	crds        string
}

// path is where a program is; programs that the user's own directory lacks may be in the cache.
func (p programs) path(name string) string {
	for _, dir := range []string{p.bin, p.cached} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(p.bin, name)
}

func findPrograms(repository string) (programs, error) {
	version, err := moduleProperty(repository, "k8s.io/api", "{{.Version}}")
	if err != nil {
		return programs{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return programs{}, err
	}
	// Kubernetes v1.37.2 has libraries v0.37.2.
	kubernetes := filepath.Join(cache, "kubernetes-v1"+strings.TrimPrefix(version, "v0"))
	p := programs{bin: os.Getenv(assetsEnv), cached: filepath.Join(kubernetes, "bin"), crds: filepath.Join(kubernetes, "crds")}
	if p.bin == "" {
		p.bin = p.cached
	}
	if _, err := os.Stat(p.crds); errors.Is(err, os.ErrNotExist) {
		certManager, err := moduleProperty(repository, "github.com/cert-manager/cert-manager", "{{.Dir}}")
		if err != nil {
			return programs{}, err
		}
		p.crds = filepath.Join(certManager, "deploy", "crds")
	}
	return p, p.check()
}

func (p programs) check() error {
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(p.path(name)); err != nil {
			return fmt.Errorf("no %s in %s: run `make test-api`, which builds it, or set %s to a directory with etcd, "+
				"kube-apiserver and kubectl: %w", name, p.bin, assetsEnv, err)
		}
	}
	return nil
}

// cacheDir is where `make test-api` puts what it builds.
func cacheDir() (string, error) {
	if dir := os.Getenv("PG_OPERATOR_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: set PG_OPERATOR_CACHE: %w", err)
	}
	return filepath.Join(dir, "pg-operator"), nil
}

// moduleProperty asks go about a module that this one depends on.
func moduleProperty(repository, module, format string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", format, module)
	cmd.Dir = repository
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// repositoryRoot is the directory of go.mod, above the test's own.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory: run the tests with go test")
		}
	}
}
