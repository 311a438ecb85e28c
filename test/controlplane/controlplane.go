// Package controlplane gives tests a real kube-apiserver and etcd, with our CRDs
// and cert-manager's, the real kubectl, and on request the real cert-manager
// controllers and our webhooks. There is no kubelet and no controller-manager:
// no pod runs, no garbage is collected, no namespace goes away.
//
// A test package has one control plane, started by its TestMain and shared by
// its tests; each test works in a namespace of its own:
//
//	var plane *controlplane.ControlPlane
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &plane, controlplane.Options{})) }
//
//	func TestX(t testing.TB) {
//		ns := plane.Namespace(t)
//		err := plane.Client.Create(t.Context(), cluster(ns))
//		out := plane.Kubectl(t, "get", "pgc", "-n", ns)
//		...
//	}
//
// Suites for server-side apply use Client (typed, for administrators), As (a
// client with the rights of some other user, for example of the operator's
// ServiceAccount after config/rbac was applied), AuditEvents (who sent which
// request), InstallCRD (a CRD that was changed, for example without CEL) and
// Eventually (wait for a state; nothing sleeps).
//
// Programs come from KUBEBUILDER_ASSETS, else from the cache that
// `make test-api` fills.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// Options of a control plane.
type Options struct {
	// CertManager runs cert-manager's controllers and cainjector.
	CertManager bool
	// APIServerFlags are added to kube-apiserver's, without the leading dashes.
	APIServerFlags map[string]string
	// Afterwards is asked when the package's tests are done; its error fails the package.
	Afterwards func(*ControlPlane) error
}

// ControlPlane is a running kube-apiserver with its etcd.
type ControlPlane struct {
	// Config connects as a cluster administrator.
	Config *rest.Config
	// Client acts as a cluster administrator, without a cache.
	Client client.WithWatch
	// Scheme knows Kubernetes' kinds, CRDs, cert-manager's kinds and ours.
	Scheme *runtime.Scheme
	// Kubeconfig is a file that connects as a cluster administrator.
	Kubeconfig string
	// Repository is the root directory of this repository.
	Repository string

	env         *envtest.Environment
	programs    programs
	dir         string
	watchdog    *watchdog
	certManager *process
	audit       audit
}

// During starts a control plane that ends with a test or benchmark.
func During(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	plane, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return plane
}

// startTimeout is ample for a kube-apiserver on a busy machine with two cores.
const startTimeout = 2 * time.Minute

// Main starts a control plane, runs a package's tests against it and stops it. Its result is for os.Exit.
func Main(m *testing.M, plane **ControlPlane, opts Options) int {
	started, err := Start(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "control plane:", err)
		return 1
	}
	*plane = started
	code := m.Run()
	if opts.Afterwards != nil {
		if err := opts.Afterwards(started); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
			code = 1
		}
	}
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "control plane:", err)
		return 1
	}
	return code
}

// Start starts a control plane with all CRDs established.
func Start(opts Options) (*ControlPlane, error) {
	ctrl.SetLogger(logr.Discard())
	repository, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	found, err := findPrograms(repository)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg-operator-controlplane-")
	if err != nil {
		return nil, err
	}
	p := &ControlPlane{Scheme: newScheme(), Repository: repository, programs: found, dir: dir}
	if err := p.start(opts); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, cmv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two kinds of the same name: a mistake in this function.
		}
	}
	return scheme
}

func (p *ControlPlane) start(opts Options) error {
	p.env = &envtest.Environment{
		Scheme:                   p.Scheme,
		ControlPlaneStartTimeout: startTimeout,
		ErrorIfCRDPathMissing:    true,
		CRDDirectoryPaths:        []string{filepath.Join(p.Repository, "config", "crd", "bases"), p.programs.crds},
	}
	if err := p.configureServers(opts); err != nil {
		return err
	}
	config, err := p.env.Start()
	if err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	p.Config = config
	if p.Client, err = client.NewWithWatch(config, client.Options{Scheme: p.Scheme}); err != nil {
		return err
	}
	p.Kubeconfig = filepath.Join(p.dir, "kubeconfig")
	if err := os.WriteFile(p.Kubeconfig, p.env.KubeConfig, 0o600); err != nil {
		return err
	}
	if opts.CertManager {
		return p.startCertManager()
	}
	return nil
}

// configureServers puts the servers under the watchdog's eyes and their files into the control plane's directory.
func (p *ControlPlane) configureServers(opts Options) error {
	var err error
	if p.watchdog, err = startWatchdog(p.dir); err != nil {
		return err
	}
	etcd, server := &envtest.Etcd{DataDir: filepath.Join(p.dir, "etcd-data")}, p.env.ControlPlane.GetAPIServer()
	p.env.ControlPlane.Etcd = etcd
	server.CertDir = filepath.Join(p.dir, "apiserver-certs")
	for _, dir := range []string{etcd.DataDir, server.CertDir} {
		if err = os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if etcd.Path, err = p.watchdog.guard(p.programs.path("etcd")); err != nil {
		return err
	}
	if server.Path, err = p.watchdog.guard(p.programs.path("kube-apiserver")); err != nil {
		return err
	}
	etcd.Configure().Append("unsafe-no-fsync", "true")
	// Each cluster takes three addresses, and nobody gives them back before the server ends: envtest's 254 are too few.
	server.Configure().Set("service-cluster-ip-range", "10.96.0.0/16")
	for flag, value := range opts.APIServerFlags {
		server.Configure().Set(flag, value)
	}
	return p.configureAudit(server)
}

// Stop ends every process that Start started and removes its files.
func (p *ControlPlane) Stop() error {
	var errs []error
	if p.certManager != nil {
		errs = append(errs, p.certManager.stop())
	}
	if p.env != nil {
		errs = append(errs, p.env.Stop())
	}
	errs = append(errs, os.RemoveAll(p.dir))
	if p.watchdog != nil {
		errs = append(errs, p.watchdog.stop())
	}
	return errors.Join(errs...)
}

// As is a client with the rights of another user.
func (p *ControlPlane) As(t testing.TB, user string, groups ...string) client.WithWatch {
	t.Helper()
	config := rest.CopyConfig(p.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.NewWithWatch(config, client.Options{Scheme: p.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Eventually waits until condition returns nil, at most a minute, and reports its last error. The API server itself takes
// half a minute to remove the definitions of a few kinds.
func Eventually(t testing.TB, condition func(context.Context) error) {
	t.Helper()
	EventuallyIn(t.Context(), t, condition)
}

// EventuallyIn is Eventually with another context than the test's, which is done when its cleanup runs.
func EventuallyIn(ctx context.Context, t testing.TB, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := poll(ctx, condition); err != nil {
		t.Fatal(err)
	}
}

// poll ends with the last error that the deadline itself did not cause: it says what was awaited.
func poll(ctx context.Context, condition func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline, bounded := ctx.Deadline()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil && (!bounded || time.Now().Before(deadline)) {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within the deadline: %w", last)
		case <-ticker.C:
		}
	}
}
