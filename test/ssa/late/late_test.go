// Package late_test proves that the operator waits for a cert-manager that is
// installed after it, and goes on without a restart.
package late_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler"
	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{}))
}

func TestCertManagerIsInstalledLater(t *testing.T) {
	removed := uninstall(t)
	namespace := plane.Namespace(t)
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "example.com/disk",
	}
	if err := plane.Client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	start(t)
	replicas := int32(1)
	c := &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders"},
		Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "1Gi"},
	}
	if err := plane.Client.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	created := time.Now()
	controlplane.Eventually(t, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled)
		if condition == nil || condition.Reason != v1alpha1.ReasonCertManagerMissing {
			return fmt.Errorf("conditions %v", c.Status.Conditions)
		}
		if !strings.Contains(condition.Message, "install cert-manager") {
			t.Errorf("the message does not say what to do: %s", condition.Message)
		}
		return nil
	})
	if took := time.Since(created); took > 15*time.Second {
		t.Errorf("the condition took %s", took)
	}
	set := &appsv1.StatefulSet{}
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(c), set); err == nil {
		t.Error("a StatefulSet whose pods cannot mount their certificates")
	}
	for i := range removed {
		if err := plane.Client.Create(t.Context(), &removed[i]); err != nil {
			t.Fatal(err)
		}
	}
	controlplane.Eventually(t, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(c), set); err != nil {
			return fmt.Errorf("conditions %v: %w", c.Status.Conditions, err)
		}
		return nil
	})
	// Without its controllers no certificate is issued, and the status says so.
	controlplane.Eventually(t, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != v1alpha1.ReasonCertificateNotReady {
			return fmt.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
		}
		return nil
	})
}

// uninstall takes cert-manager's kinds away, and returns them.
func uninstall(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := plane.Client.List(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	var removed []apiextensionsv1.CustomResourceDefinition
	for _, crd := range all.Items {
		if !strings.HasSuffix(crd.Spec.Group, "cert-manager.io") {
			continue
		}
		if err := plane.Client.Delete(t.Context(), &crd); err != nil {
			t.Fatal(err)
		}
		removed = append(removed, apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: crd.Name, Labels: crd.Labels, Annotations: crd.Annotations}, Spec: crd.Spec,
		})
	}
	if len(removed) == 0 {
		t.Fatal("cert-manager's kinds are not installed")
	}
	controlplane.Eventually(t, func(ctx context.Context) error {
		if err := plane.Client.List(ctx, all); err != nil {
			return err
		}
		for _, crd := range all.Items {
			if strings.HasSuffix(crd.Spec.Group, "cert-manager.io") {
				return errors.New(crd.Name + " is still there")
			}
		}
		return nil
	})
	return removed
}

func start(t *testing.T) {
	t.Helper()
	mgr, err := ctrl.NewManager(plane.Config, ctrl.Options{
		Scheme: plane.Scheme, Cache: reconciler.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{FieldOwner: naming.FieldManager},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := reconciler.SetupWithManager(mgr, reconciler.Options{
		OperatorImage: "registry.example/pg-operator:test", Images: map[string]string{"17": "postgres:17"},
		Defaults: v1alpha1.Defaults{Version: "17", Storage: "1Gi"},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
