package localcluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deleteTimeout bounds the end of a test's namespace; databases stop in an orderly way meanwhile.
const deleteTimeout = 2 * time.Minute

// Namespace makes a namespace for one test, in which Pod Security "restricted"
// is enforced, and returns its name. After the test it is deleted with all it
// holds; when the test failed, logs are collected before that and the test
// says where.
func (c *Cluster) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: prefix + "-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := c.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.explain(t, namespace.Name)
		}
		c.deleteNamespace(t, namespace)
	})
	return namespace.Name
}

// explain collects logs and prints where they are. The test's own context has ended.
func (c *Cluster) explain(t testing.TB, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := artifacts(t.Name())
	if err != nil {
		t.Logf("No logs collected: %v", err)
		return
	}
	if err := c.CollectLogs(ctx, dir, namespace, OperatorNamespace); err != nil {
		t.Logf("Some logs are missing: %v", err)
	}
	t.Logf("Logs of the cluster are in %s", dir)
}

func (c *Cluster) deleteNamespace(t testing.TB, namespace *corev1.Namespace) {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if err := c.Client.Delete(ctx, namespace); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete namespace %s: %v", namespace.Name, err)
		return
	}
	_, err := Wait(ctx, deleteTimeout, "namespace "+namespace.Name+" is gone", func(ctx context.Context) (bool, string) {
		var live corev1.Namespace
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(namespace), &live)
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		if err != nil {
			return false, err.Error()
		}
		return false, remaining(live)
	})
	if err != nil {
		t.Error(err)
	}
}

// remaining says what keeps a namespace from ending.
func remaining(namespace corev1.Namespace) string {
	texts := []string{string(namespace.Status.Phase)}
	for _, condition := range namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			texts = append(texts, condition.Message)
		}
	}
	return strings.Join(texts, "; ")
}
