package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/lease"
)

// ErrConflict tells that somebody else wrote the Lease since it was read.
var ErrConflict = errors.New("the Lease was written by somebody else")

// ErrNoLease tells that the Lease does not exist.
var ErrNoLease = errors.New("the Lease does not exist; the operator has to make it")

// ErrDismissed tells that the API server does not know the agent's account any more, as after the cluster's deletion.
var ErrDismissed = errors.New("the API server does not know the agent's account")

// leaseStore keeps the object that was last read or written, to which a patch belongs.
type leaseStore struct {
	mu   sync.Mutex
	last *coordinationv1.Lease
}

// Lease reads the Lease, live.
func (c *Client) Lease(ctx context.Context) (lease.Lease, error) {
	object, err := c.leases.Leases(c.pod.Namespace).Get(ctx, c.cluster.Lease(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return lease.Lease{}, ErrNoLease
	}
	if err != nil {
		return lease.Lease{}, err
	}
	return c.lease.keep(object), nil
}

// UpdateLease writes the Lease if it still is as l.Version says, and returns it as written. ErrConflict means that it
// is not, ErrNoLease that it is gone, ErrDismissed that the agent may not write any more. duration is told to those who read the Lease.
func (c *Client) UpdateLease(ctx context.Context, l lease.Lease, duration time.Duration) (lease.Lease, error) {
	patch, err := c.lease.patch(l, duration, metav1.NowMicro())
	if err != nil {
		return lease.Lease{}, err
	}
	written, err := c.leases.Leases(c.pod.Namespace).Patch(ctx, c.cluster.Lease(),
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: naming.FieldManagerInstance})
	if apierrors.IsConflict(err) {
		return lease.Lease{}, ErrConflict
	}
	if apierrors.IsNotFound(err) {
		return lease.Lease{}, ErrNoLease
	}
	if apierrors.IsUnauthorized(err) {
		return lease.Lease{}, fmt.Errorf("%w: %w", ErrDismissed, err)
	}
	if err != nil {
		return lease.Lease{}, err
	}
	return c.lease.keep(written), nil
}

func (s *leaseStore) keep(object *coordinationv1.Lease) lease.Lease {
	l := decodeLease(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = object
	return l
}

// patch has the resourceVersion of the object that it belongs to: the API server refuses it for any other.
func (s *leaseStore) patch(l lease.Lease, duration time.Duration, now metav1.MicroTime) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.ResourceVersion == "" || s.last.ResourceVersion != l.Version {
		return nil, ErrConflict
	}
	spec := s.last.Spec.DeepCopy()
	seconds := int32(duration / time.Second)
	spec.HolderIdentity, spec.LeaseTransitions = &l.Holder, &l.Term
	spec.LeaseDurationSeconds, spec.RenewTime = &seconds, &now
	if s.last.Spec.HolderIdentity == nil || *s.last.Spec.HolderIdentity != l.Holder {
		spec.AcquireTime = &now
	}
	annotations, err := leaseAnnotations(l)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": l.Version, "annotations": annotations},
		"spec":     spec,
	})
}
