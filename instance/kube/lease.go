package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// ErrConflict tells that somebody else wrote the Lease since it was read.
var ErrConflict = errors.New("the Lease was written by somebody else")

// ErrNoLease tells that the Lease does not exist.
var ErrNoLease = errors.New("the Lease does not exist; the operator has to make it")

// leaseStore keeps the object that was last read or written, to which a patch belongs.
type leaseStore struct {
	mu   sync.Mutex
	last *coordinationv1.Lease
}

// Lease reads the Lease, live.
func (c *Client) Lease(ctx context.Context) (lease.Lease, error) {
	object, err := c.clientset.CoordinationV1().Leases(c.pod.Namespace).Get(ctx, c.cluster.Lease(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return lease.Lease{}, ErrNoLease
	}
	if err != nil {
		return lease.Lease{}, err
	}
	return c.lease.keep(object)
}

// UpdateLease writes the Lease if it still is as l.Version says, and returns it as written. ErrConflict means that it
// is not, ErrNoLease that it is gone. duration is told to those who read the Lease.
func (c *Client) UpdateLease(ctx context.Context, l lease.Lease, duration time.Duration) (lease.Lease, error) {
	patch, err := c.lease.patch(l, duration, metav1.NowMicro())
	if err != nil {
		return lease.Lease{}, err
	}
	written, err := c.clientset.CoordinationV1().Leases(c.pod.Namespace).Patch(ctx, c.cluster.Lease(),
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: naming.FieldManagerInstance})
	if apierrors.IsConflict(err) {
		return lease.Lease{}, ErrConflict
	}
	if apierrors.IsNotFound(err) {
		return lease.Lease{}, ErrNoLease
	}
	if err != nil {
		return lease.Lease{}, err
	}
	return c.lease.keep(written)
}

func (s *leaseStore) keep(object *coordinationv1.Lease) (lease.Lease, error) {
	l, err := decodeLease(object)
	if err != nil {
		return lease.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = object
	return l, nil
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
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": l.Version, "annotations": leaseAnnotations(l)},
		"spec":     spec,
	})
}

// leaseAnnotations are the annotations of a Lease; nil takes one away.
func leaseAnnotations(l lease.Lease) map[string]any {
	timeline := ""
	if l.Timeline != 0 {
		timeline = strconv.FormatUint(uint64(l.Timeline), 10)
	}
	annotations := map[string]any{}
	for name, value := range map[string]string{
		naming.AnnotationLeaseSystemID: l.SystemID,
		naming.AnnotationLeaseTimeline: timeline,
		naming.AnnotationLeaseWALLSN:   position(l.WALLSN),
		naming.AnnotationLeaseMembers:  strings.Join(l.Members, ","),
		naming.AnnotationLeaseReleased: position(l.Released),
	} {
		if annotations[name] = value; value == "" {
			annotations[name] = nil
		}
	}
	return annotations
}

func position(l postgres.LSN) string {
	if l == 0 {
		return ""
	}
	return l.String()
}

func decodeLease(object *coordinationv1.Lease) (lease.Lease, error) {
	l := lease.Lease{Version: object.ResourceVersion, SystemID: object.Annotations[naming.AnnotationLeaseSystemID]}
	if object.Spec.HolderIdentity != nil {
		l.Holder = *object.Spec.HolderIdentity
	}
	if object.Spec.LeaseTransitions != nil {
		l.Term = *object.Spec.LeaseTransitions
	}
	if members := object.Annotations[naming.AnnotationLeaseMembers]; members != "" {
		l.Members = strings.Split(members, ",")
	}
	if text := object.Annotations[naming.AnnotationLeaseTimeline]; text != "" {
		timeline, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return lease.Lease{}, fmt.Errorf("annotation %s of the Lease: %w", naming.AnnotationLeaseTimeline, err)
		}
		l.Timeline = postgres.Timeline(timeline)
	}
	for name, lsn := range map[string]*postgres.LSN{
		naming.AnnotationLeaseWALLSN: &l.WALLSN, naming.AnnotationLeaseReleased: &l.Released,
	} {
		if text := object.Annotations[name]; text != "" {
			parsed, err := postgres.ParseLSN(text)
			if err != nil {
				return lease.Lease{}, fmt.Errorf("annotation %s of the Lease: %w", name, err)
			}
			*lsn = parsed
		}
	}
	return l, nil
}
