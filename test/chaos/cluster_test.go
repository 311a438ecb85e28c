package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/localcluster"
)

func deletePod(ctx context.Context, b *bed, primary string) (mend, error) {
	return nil, b.delete(ctx, primary, -1)
}

func forceDelete(ctx context.Context, b *bed, primary string) (mend, error) {
	return nil, b.delete(ctx, primary, 0)
}

// drain moves everything off the primary's node, as before maintenance, and allows it again in the end.
func drain(ctx context.Context, b *bed, primary string) (mend, error) {
	pod, err := b.pod(ctx, primary)
	if err != nil {
		return nil, err
	}
	node := pod.Spec.NodeName
	allow := func(ctx context.Context) error {
		_, failed := b.cluster.Kubectl(ctx, "uncordon", node)
		return failed
	}
	_, err = b.cluster.Kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
	return allow, err
}

// withoutOperator kills the primary's postmaster while no operator runs.
func withoutOperator(ctx context.Context, b *bed, primary string) (mend, error) {
	processes, err := b.cluster.OperatorReplicas(ctx)
	if err != nil {
		return nil, err
	}
	bring := func(ctx context.Context) error { return b.cluster.ScaleOperator(ctx, processes) }
	if err = b.cluster.ScaleOperator(ctx, 0); err != nil {
		return bring, err
	}
	_, err = killPostmaster(ctx, b, primary)
	return bring, err
}

// switchover asks for another primary, and waits until there is one: the one that was asked for, unless it was late.
func switchover(ctx context.Context, b *bed, primary string) (mend, error) {
	target := b.others(primary)[0]
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{naming.AnnotationSwitchover: fmt.Sprintf("%s%s%d", target, naming.SwitchoverMark, time.Now().UnixNano())},
	}})
	if err != nil {
		return nil, err
	}
	object := &v1alpha1.PostgresCluster{}
	object.Namespace, object.Name = b.namespace, string(b.Cluster)
	if err = b.cluster.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, err
	}
	_, err = localcluster.Wait(ctx, time.Minute, "another primary", func(ctx context.Context) (bool, string) {
		holder, _, unread := b.lease(ctx)
		return holder != "" && holder != primary, fmt.Sprintf("%s holds the Lease, %v", holder, unread)
	})
	return nil, err
}

// awaitPrimary waits until the Lease's holder runs as the primary of a term later than the given one.
func (b *bed) awaitPrimary(ctx context.Context, term int32) (primary string, err error) {
	_, err = localcluster.Wait(ctx, time.Minute, "a primary of a later term", func(ctx context.Context) (bool, string) {
		holder, now, unread := b.lease(ctx)
		if unread != nil || holder == "" {
			return false, fmt.Sprintf("no holder, %v", unread)
		}
		pod, unread := b.pod(ctx, holder)
		if unread != nil {
			return false, unread.Error()
		}
		report := contract.ParseReport(pod.Annotations[naming.AnnotationReport])
		primary = holder
		return now > term && report != nil && report.Term == now && report.Role == contract.RolePrimary && report.State == contract.StateRunning,
			fmt.Sprintf("%s in term %d reports %+v", holder, now, report)
	})
	return primary, err
}
