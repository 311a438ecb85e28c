package reconciler

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// editedFirst enqueues PostgresClusters. Of those that are found when the operator starts, the ones whose spec no
// operator has seen come before the others: somebody waits for them.
type editedFirst struct {
	handler.EnqueueRequestForObject
}

// Create leaves the low priority of what was there before to clusters that are as they were.
func (h *editedFirst) Create(
	ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	cluster, isCluster := e.Object.(*v1alpha1.PostgresCluster)
	byPriority, hasPriorities := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	if !isCluster || !hasPriorities || cluster.Generation == cluster.Status.ObservedGeneration {
		h.EnqueueRequestForObject.Create(ctx, e, queue)
		return
	}
	byPriority.AddWithOpts(priorityqueue.AddOpts{}, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
}
