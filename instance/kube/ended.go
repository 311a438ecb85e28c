package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
)

// Ended tells whether the kubelet says that the incarnation which holds the Lease, as it was last read, has ended with all
// its processes. A pod that is gone proves nothing: its node may only be cut off.
func (c *Client) Ended(ctx context.Context, holder string) (bool, error) {
	acquired := c.lease.acquired(holder)
	if acquired == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod, err := c.clientset.CoreV1().Pods(c.pod.Namespace).Get(ctx, lease.Instance(holder), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	report := contract.ParseReport(pod.Annotations[naming.AnnotationReport])
	if report == nil || lease.Identity(pod.Name, report.Incarnation) != holder {
		return false, nil
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == naming.ContainerPostgres {
			return endedAfter(status, *acquired), nil
		}
	}
	return false, nil
}

// endedAfter tells whether no container runs, and the last one ended after a time on the clock of its own node: then it
// is the one that was there at that time, or a later one.
func endedAfter(status corev1.ContainerStatus, then metav1.MicroTime) bool {
	ended := status.State.Terminated
	if ended == nil && status.State.Waiting != nil {
		ended = status.LastTerminationState.Terminated
	}
	return ended != nil && then.Time.Before(ended.FinishedAt.Time)
}

// acquired is when the holder took the Lease as it was last read; nil if it is not the holder, or that is not known.
func (s *leaseStore) acquired(holder string) *metav1.MicroTime {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.Spec.HolderIdentity == nil || *s.last.Spec.HolderIdentity != holder {
		return nil
	}
	return s.last.Spec.AcquireTime
}
