// Package operator runs the reconciler inside a test of the API server, with
// the rights that the manifests give it and no others.
package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler"
	"github.com/acme/pg-operator/test/controlplane"
)

// User is the operator's account.
const User = "system:serviceaccount:pg-operator-system:pg-operator"

// The default StorageClass, which can grow volumes, and one that cannot.
const (
	StorageClass      = "standard"
	StorageClassRigid = "rigid"
)

var (
	mu        sync.Mutex
	installed = map[*controlplane.ControlPlane]bool{}
)

// Install gives a control plane the operator's rights and two StorageClasses, once.
func Install(t testing.TB, plane *controlplane.ControlPlane) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if installed[plane] {
		return
	}
	role, err := shippedRole(plane.Repository)
	if err != nil {
		t.Fatal(err)
	}
	expand := true
	for _, object := range []client.Object{
		role,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: "pg-operator-system", Name: "pg-operator",
			}},
		},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{
				Name: StorageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
			},
			Provisioner: "example.com/disk", AllowVolumeExpansion: &expand,
		},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: StorageClassRigid}, Provisioner: "example.com/disk"},
	} {
		if err := plane.Client.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	installed[plane] = true
}

// shippedRole is the ClusterRole of config/rbac.
func shippedRole(repository string) (*rbacv1.ClusterRole, error) {
	file := filepath.Join(repository, "config", "rbac", "role.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if !strings.Contains(document, "kind: ClusterRole\n") {
			continue
		}
		role := &rbacv1.ClusterRole{}
		return role, yaml.UnmarshalStrict([]byte(document), role)
	}
	return nil, fmt.Errorf("no ClusterRole in %s", file)
}

// Options are the reconciler's in tests.
func Options() reconciler.Options {
	return reconciler.Options{
		OperatorImage: "registry.example/pg-operator:test",
		Images:        map[string]string{"15": "postgres:15", "16": "postgres:16", "17": "postgres:17", "18": "postgres:18"},
		Defaults:      v1alpha1.Defaults{Version: "17", Storage: "50Gi"},
	}
}

// Start runs the reconciler for one namespace until the test ends or the result is called. change may alter the
// connection and the options of its manager.
func Start(
	t testing.TB, plane *controlplane.ControlPlane, namespace string, options reconciler.Options,
	change func(*rest.Config, *ctrl.Options),
) (stop func()) {
	t.Helper()
	Install(t, plane)
	restConfig := rest.CopyConfig(plane.Config)
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: User, Groups: []string{"system:authenticated"}}
	restConfig.QPS, restConfig.Burst = -1, -1
	skip := true
	managerOptions := ctrl.Options{
		Scheme:     plane.Scheme,
		Cache:      reconciler.CacheOptions(),
		Client:     client.Options{FieldOwner: naming.FieldManager},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
	}
	managerOptions.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	change(restConfig, &managerOptions)
	mgr, err := ctrl.NewManager(restConfig, managerOptions)
	if err != nil {
		t.Fatal(err)
	}
	if err := reconciler.SetupWithManager(mgr, options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("operator: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the operator does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}
