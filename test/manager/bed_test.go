// Package manager runs the operator's real process against a real API server
// with real cert-manager controllers. The API server reaches the webhooks as in
// a cluster, through their Service: the part of the Service is played by a
// tunnel that leads to whichever operators are in it.
package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/certs"
	"github.com/acme/pg-operator/test/audit"
	"github.com/acme/pg-operator/test/controlplane"
)

const (
	namespace = "pg-operator-system"
	account   = "system:serviceaccount:" + namespace + ":pg-operator"
)

// What all tests share.
var (
	plane  *controlplane.ControlPlane
	tunnel *service
	binary string
)

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "pg-operator-manager-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "pg-operator")
	build := exec.Command("go", "build", "-o", binary, "../..")
	out, err := build.CombinedOutput()
	if err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	if tunnel, err = listen(filepath.Join(dir, "tunnel.sock")); err != nil {
		return 1, err
	}
	defer tunnel.close()
	egress := filepath.Join(dir, "egress.yaml")
	if err := os.WriteFile(egress, []byte(tunnel.egressConfiguration()), 0o600); err != nil {
		return 1, err
	}
	return controlplane.Main(m, &plane, controlplane.Options{
		CertManager: true, APIServerFlags: map[string]string{"egress-selector-config-file": egress},
		Afterwards: func(p *controlplane.ControlPlane) error {
			return audit.Check(p.AuditLog(), time.Time{}, audit.Operator)
		},
	}), nil
}

// installed applies config/default and returns its certificate, mounted. Nobody holds the operators' Lease, whatever
// an earlier test's left.
func installed(t *testing.T) *volume {
	t.Helper()
	left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pg-operator"}}
	if err := plane.Client.Delete(t.Context(), left); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	plane.Kubectl(t, "apply", "--server-side", "-k", "../../config/default")
	return mount(t)
}

// kubeconfig acts with the rights of the operator's account and nothing more.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = account
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// admits creates and forgets a PostgresCluster: it passes both webhooks or says why it does not.
func admits(ctx context.Context) error {
	cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "probe-"}}
	if err := plane.Client.Create(ctx, cluster, client.DryRunAll); err != nil {
		return err
	}
	if cluster.Spec.Version == "" {
		return errors.New("the defaulting webhook was not called")
	}
	return nil
}

func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	controlplane.Eventually(t, condition)
}

func secret(ctx context.Context, name string) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	err := plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	return found, err
}

// reissue throws a certificate's Secret away, whereupon cert-manager issues another.
func reissue(t *testing.T, name string) {
	t.Helper()
	old, err := secret(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		now, err := secret(ctx, name)
		if apierrors.IsNotFound(err) || err == nil && bytes.Equal(now.Data[certs.FileCertificate], old.Data[certs.FileCertificate]) {
			return fmt.Errorf("secret %s has not been issued anew", name)
		}
		return err
	})
}

// get reads a page of a probe server.
func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	return response.StatusCode, body.String(), err
}
