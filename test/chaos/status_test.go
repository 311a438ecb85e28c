package chaos

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// followStatus looks at the cluster's status until the returned function asks what it said: the failover that happened
// meanwhile, nil if none did, and its cause, or else the reasons why the cluster was not well.
func (r *trial) followStatus() (told func() (failover *v1alpha1.FailoverRecord, reason string)) {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	done := make(chan struct{})
	before, _ := r.status(ctx)
	seen := map[string]bool{}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if status, err := r.status(ctx); err == nil {
				collect(seen, status)
			}
			wait(ctx, 300*time.Millisecond)
		}
	}()
	return func() (*v1alpha1.FailoverRecord, string) {
		cancel()
		<-done
		after, err := r.status(r.t.Context())
		if err == nil && after.LastFailover != nil && !reflect.DeepEqual(before.LastFailover, after.LastFailover) {
			return after.LastFailover, after.LastFailover.Cause
		}
		return nil, strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
	}
}

func (r *trial) status(ctx context.Context) (v1alpha1.PostgresClusterStatus, error) {
	object := &v1alpha1.PostgresCluster{}
	err := r.bed.cluster.Client.Get(ctx, r.bed.key(string(r.bed.Cluster)), object)
	return object.Status, err
}

// collect notes why a cluster is not ready.
func collect(seen map[string]bool, status v1alpha1.PostgresClusterStatus) {
	for _, condition := range status.Conditions {
		bad := metav1.ConditionTrue
		if condition.Type == v1alpha1.ConditionReady {
			bad = metav1.ConditionFalse
		}
		if condition.Status == bad && condition.Type != v1alpha1.ConditionProgressing {
			seen[condition.Reason] = true
		}
	}
}
