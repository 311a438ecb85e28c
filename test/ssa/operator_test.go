package ssa_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/operator"
)

const operatorUser = operator.User

// running is an operator for one namespace, with the rights that the manifests give.
type running struct{ stop func() }

// startOperator runs the reconciler until the test ends or stop is called.
func startOperator(t testing.TB, namespace string) *running {
	t.Helper()
	return startOperatorWith(t, namespace, func(*rest.Config, *ctrl.Options) {})
}

// startOperatorWith runs the reconciler with another connection or other options of its manager.
func startOperatorWith(t testing.TB, namespace string, change func(*rest.Config, *ctrl.Options)) *running {
	t.Helper()
	return &running{operator.Start(t, plane, namespace, operator.Options(), change)}
}

// poorAccount makes an account with all rights of the operator, but on one resource of Kubernetes' core these verbs only.
func poorAccount(t testing.TB, namespace, resource string, verbs ...string) (user string) {
	t.Helper()
	operator.Install(t, plane)
	role, err := get(t.Context(), "", "pg-operator", &rbacv1.ClusterRole{})
	if err != nil {
		t.Fatal(err)
	}
	poor := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "poor-" + namespace}}
	for _, rule := range role.Rules {
		rule.Resources = slices.DeleteFunc(rule.Resources, func(name string) bool { return name == resource })
		if len(rule.Resources) > 0 {
			poor.Rules = append(poor.Rules, rule)
		}
	}
	poor.Rules = append(poor.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs})
	create(t, poor)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: poor.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: poor.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: poor.Name}},
	})
	return poor.Name
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
