package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestRetain deletes a cluster in the foreground, keeps its volumes, and gets
// the same database back under the same name.
func TestRetain(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	d := newDatabase(t, cluster, "retain", replicas(2))
	d.awaitReady(readyTimeout)
	d.execSQL("create table kept as select generate_series(1, 100) as id")
	id, claims := d.object().Status.SystemID, []string{string(d.claim(0).UID), string(d.claim(1).UID)}

	d.kubectl("delete", "pgc", string(d.Cluster), "--cascade=foreground", "--timeout=90s")
	d.awaitGone()
	for ordinal, uid := range claims {
		if claim := d.claim(int32(ordinal)); string(claim.UID) != uid || claim.DeletionTimestamp != nil {
			t.Fatalf("volume %s is not kept", claim.Name)
		}
	}

	d.create(replicas(2))
	d.awaitReady(readyTimeout)
	if got := d.object().Status.SystemID; got != id {
		t.Errorf("the re-created cluster has system identifier %s, want %s", got, id)
	}
	d.awaitStreaming(1, 30*time.Second)
	d.awaitRows(d.ServiceReadWrite(), "kept", 100)
	d.awaitRows(d.ServiceReadOnly(), "kept", 100)
	d.execSQL("insert into kept values (101)")
}

// TestDelete deletes the volumes with the cluster.
func TestDelete(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "delete", func(spec *v1alpha1.PostgresClusterSpec) {
		spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete
	})
	d.awaitReady(readyTimeout)
	volume := d.claim(0).Spec.VolumeName
	d.kubectl("delete", "pgc", string(d.Cluster), "--timeout=90s")
	d.awaitGone()
	eventually(t, time.Minute, "volumes are gone", func(ctx context.Context) (bool, string) {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := cluster.Client.List(ctx, claims, client.InNamespace(d.namespace)); err != nil {
			return false, err.Error()
		}
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: volume}, &corev1.PersistentVolume{})
		return len(claims.Items) == 0 && apierrors.IsNotFound(err), fmt.Sprintf("%d claims, PersistentVolume: %v", len(claims.Items), err)
	})
}

// TestDeletedWhileStarting deletes a cluster that is not ready, and a whole
// namespace with one.
func TestDeletedWhileStarting(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "halfway", replicas(3))
	eventually(t, readyTimeout, "a pod", func(ctx context.Context) (bool, string) {
		err := cluster.Client.Get(ctx, d.key(d.Instance(0)), &corev1.Pod{})
		return err == nil, fmt.Sprint(err)
	})
	d.kubectl("delete", "pgc", string(d.Cluster), "--cascade=foreground", "--timeout=90s")
	d.awaitGone()

	d.create(nil) // its namespace is deleted at the test's end, which must not hang
	eventually(t, readyTimeout, "a new pod", func(ctx context.Context) (bool, string) {
		err := cluster.Client.Get(ctx, d.key(d.Instance(0)), &corev1.Pod{})
		return err == nil, fmt.Sprint(err)
	})
}

// TestProtectedNamespace deletes the namespace of a protected cluster: the
// real namespace controller waits, says who to ask, and goes on when the
// protection is lifted.
func TestProtectedNamespace(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "protected", func(spec *v1alpha1.PostgresClusterSpec) { spec.DeletionProtection = true })
	d.kubectl("delete", "namespace", d.namespace, "--wait=false")
	hint := fmt.Sprintf(`kubectl patch pgc %s -n %s --type=merge -p '{"spec":{"deletionProtection":false}}'`, d.Cluster, d.namespace)
	eventually(t, time.Minute, "the namespace tells how to go on", func(ctx context.Context) (bool, string) {
		namespace := &corev1.Namespace{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: d.namespace}, namespace); err != nil {
			return false, err.Error()
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == corev1.NamespaceDeletionContentFailure && strings.Contains(condition.Message, hint) {
				return true, ""
			}
		}
		return false, fmt.Sprint(namespace.Status.Conditions)
	})
	if d.object().DeletionTimestamp != nil {
		t.Error("the protected cluster is being deleted with its namespace")
	}
	d.kubectl("patch", "pgc", string(d.Cluster), "--type=merge", `-p={"spec":{"deletionProtection":false}}`)
	eventually(t, 2*time.Minute, "the namespace is gone", func(ctx context.Context) (bool, string) {
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: d.namespace}, &corev1.Namespace{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// awaitGone waits until no object of the cluster is left but volumes that are
// kept and the Secrets that cert-manager wrote, which it never deletes.
func (d *database) awaitGone() {
	d.t.Helper()
	const kinds = "postgresclusters,statefulsets,pods,services,endpointslices,configmaps,secrets,serviceaccounts,roles,rolebindings," +
		"poddisruptionbudgets,leases,certificates,issuers"
	eventually(d.t, time.Minute, "every object of "+string(d.Cluster)+" is gone", func(ctx context.Context) (bool, string) {
		left, err := d.cluster.Kubectl(ctx, "-n", d.namespace, "get", kinds, "-o", "name", "-l", naming.LabelCluster+"="+string(d.Cluster)+",!controller.cert-manager.io/fao")
		if err != nil {
			return false, err.Error()
		}
		return left == "", strings.ReplaceAll(left, "\n", " ")
	})
}
