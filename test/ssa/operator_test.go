package ssa_test

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

const operatorUser = "system:serviceaccount:pg-operator-system:pg-operator"

var rights = sync.OnceValue(func() error {
	data, err := os.ReadFile(filepath.Join(plane.Repository, "config", "rbac", "role.yaml"))
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(document, "kind: ClusterRole\n") {
			if err := yaml.Unmarshal([]byte(document), role); err != nil {
				return err
			}
		}
	}
	if err := plane.Client.Create(context.Background(), role); err != nil {
		return err
	}
	return plane.Client.Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "pg-operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: "pg-operator-system", Name: "pg-operator",
		}},
	})
})

// operator is a running reconciler for one namespace, with the rights that the manifests give.
type operator struct {
	stop    func()
	options reconciler.Options
}

func operatorOptions() reconciler.Options {
	return reconciler.Options{
		OperatorImage: "registry.example/pg-operator:test",
		Images:        map[string]string{"15": "postgres:15", "16": "postgres:16", "17": "postgres:17", "18": "postgres:18"},
		Defaults:      v1alpha1.Defaults{Version: "17", Storage: "50Gi"},
	}
}

// startOperator runs the reconciler until the test ends or stop is called.
func startOperator(t testing.TB, namespace string) *operator {
	t.Helper()
	return startOperatorWith(t, namespace, func(*rest.Config, *ctrl.Options) {})
}

// startOperatorWith runs the reconciler with another connection or other options of its manager.
func startOperatorWith(t testing.TB, namespace string, change func(*rest.Config, *ctrl.Options)) *operator {
	t.Helper()
	return startOperatorAs(t, namespace, operatorOptions(), change)
}

// startOperatorAs runs the reconciler with options of its own, too.
func startOperatorAs(
	t testing.TB, namespace string, options reconciler.Options, change func(*rest.Config, *ctrl.Options),
) *operator {
	t.Helper()
	for _, prepare := range []func() error{rights, storageClasses} {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
	}
	restConfig := rest.CopyConfig(plane.Config)
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:authenticated"}}
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
	o := &operator{options: options}
	o.stop = sync.OnceFunc(func() {
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
	t.Cleanup(o.stop)
	return o
}

// cluster is a PostgresCluster to be created.
func cluster(namespace, name string, replicas int32) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "20Gi"},
	}
}

func create(t testing.TB, object client.Object) {
	t.Helper()
	if err := plane.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// edit changes an object as a user would with kubectl edit.
func edit(t testing.TB, object client.Object, change func()) {
	t.Helper()
	controlplane.Eventually(t, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change()
		return plane.Client.Update(ctx, object, client.FieldOwner("kubectl-edit"))
	})
}

func get[T client.Object](ctx context.Context, namespace, name string, object T) (T, error) {
	err := plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	return object, err
}

// awaitCondition waits until a condition of a cluster has a status and a reason.
func awaitCondition(
	t testing.TB, c *v1alpha1.PostgresCluster, conditionType string, status metav1.ConditionStatus, reason string,
) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err != nil {
			return err
		}
		for _, condition := range live.Status.Conditions {
			if condition.Type == conditionType && condition.Status == status && condition.Reason == reason &&
				condition.ObservedGeneration == live.Generation {
				found = condition
				return nil
			}
		}
		return fmt.Errorf("no condition %s=%s (%s) in generation %d: %s", conditionType, status, reason,
			live.Generation, describe(live.Status.Conditions))
	})
	return found
}

func awaitReady(t testing.TB, c *v1alpha1.PostgresCluster) {
	t.Helper()
	awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasReady)
}

func describe(conditions []metav1.Condition) string {
	var lines []string
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s (%s: %s, generation %d)", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration))
	}
	return strings.Join(lines, "; ")
}
