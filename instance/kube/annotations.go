package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// Limits of what is read from annotations of the Lease and written to them, in bytes; the API server allows 256 KiB
// for all of an object.
const (
	maxMembers      = 16
	maxFailoverText = 16384
	maxText         = contract.MaxFailoverText
)

// leaseAnnotations are the annotations of a Lease; nil takes one away.
func leaseAnnotations(l lease.Lease) (map[string]any, error) {
	failover, err := encodeFailover(l.Failover)
	if err != nil {
		return nil, err
	}
	annotations := map[string]any{}
	for name, value := range map[string]string{
		naming.AnnotationLeaseSystemID:   l.SystemID,
		naming.AnnotationLeaseTimeline:   number(l.Timeline),
		naming.AnnotationLeaseNewest:     number(l.Newest),
		naming.AnnotationLeaseWALLSN:     position(l.WALLSN),
		naming.AnnotationLeaseMembers:    strings.Join(l.Members, ","),
		naming.AnnotationLeaseReleased:   position(l.Released),
		naming.AnnotationLeaseReleasedBy: l.ReleasedBy,
		naming.AnnotationLeaseSuccessor:  l.Successor,
		naming.AnnotationLeaseSync:       l.Sync.String(),
		naming.AnnotationLeaseFailover:   failover,
	} {
		if annotations[name] = value; value == "" {
			annotations[name] = nil
		}
	}
	return annotations, nil
}

func number(t postgres.Timeline) string {
	if t == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(t), 10)
}

func position(l postgres.LSN) string {
	if l == 0 {
		return ""
	}
	return l.String()
}

func encodeFailover(f *lease.Failover) (string, error) {
	if f == nil {
		return "", nil
	}
	short := *f
	short.Cause, short.LostUnknown = shorten(f.Cause), shorten(f.LostUnknown)
	text, err := json.Marshal(short)
	return string(text), err
}

func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// decodeLease reads a Lease. What it cannot understand it leaves out, and says so in Problem: no annotation may keep a
// holder from renewing, or from learning that it has lost the Lease.
func decodeLease(object *coordinationv1.Lease) lease.Lease {
	a := object.Annotations
	l := lease.Lease{
		Version: object.ResourceVersion, SystemID: a[naming.AnnotationLeaseSystemID],
		ReleasedBy: a[naming.AnnotationLeaseReleasedBy], Successor: a[naming.AnnotationLeaseSuccessor],
	}
	if object.Spec.HolderIdentity != nil {
		l.Holder = *object.Spec.HolderIdentity
	}
	if object.Spec.LeaseTransitions != nil {
		l.Term = *object.Spec.LeaseTransitions
	}
	if object.Spec.LeaseDurationSeconds != nil {
		l.Duration = time.Duration(*object.Spec.LeaseDurationSeconds) * time.Second
	}
	l.Failover = readFailover(a[naming.AnnotationLeaseFailover])
	for _, part := range []struct {
		annotation string
		read       func(text string) error
	}{
		{naming.AnnotationLeaseMembers, func(text string) error { return readMembers(text, &l.Members) }},
		{naming.AnnotationLeaseTimeline, func(text string) error { return readTimeline(text, &l.Timeline) }},
		{naming.AnnotationLeaseNewest, func(text string) error { return readTimeline(text, &l.Newest) }},
		{naming.AnnotationLeaseWALLSN, func(text string) error { return readPosition(text, &l.WALLSN) }},
		{naming.AnnotationLeaseReleased, func(text string) error { return readPosition(text, &l.Released) }},
		{naming.AnnotationLeaseSync, func(text string) (err error) { l.Sync, err = lease.ParseSync(text); return err }},
	} {
		text := a[part.annotation]
		if text == "" {
			continue
		}
		if err := part.read(text); err != nil && l.Problem == "" {
			l.Problem = fmt.Sprintf("annotation %s of the Lease: %v", part.annotation, err)
		}
	}
	if l.Term < 0 || l.Duration < 0 {
		l.Problem = "leaseTransitions or leaseDurationSeconds of the Lease is negative"
	}
	return l
}

func readMembers(text string, into *[]string) error {
	members := strings.Split(text, ",")
	if len(members) > maxMembers {
		return fmt.Errorf("names %d members, more than %d", len(members), maxMembers)
	}
	for i, member := range members {
		if !lease.MemberName(member) || slices.Contains(members[:i], member) {
			return fmt.Errorf("%.80q is no list of instances", text)
		}
	}
	*into = members
	return nil
}

func readTimeline(text string, into *postgres.Timeline) error {
	timeline, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return fmt.Errorf("%.80q is no timeline", text)
	}
	*into = postgres.Timeline(timeline)
	return nil
}

func readPosition(text string, into *postgres.LSN) error {
	parsed, err := postgres.ParseLSN(text)
	if err != nil {
		return fmt.Errorf("%.80q is not a log position such as 16/B374D848", text)
	}
	*into = parsed
	return nil
}

// readFailover reads the record of the last failover. Nothing is decided by it: one that is none explains itself.
func readFailover(text string) *lease.Failover {
	if text == "" {
		return nil
	}
	read := &lease.Failover{}
	if len(text) > maxFailoverText || json.Unmarshal([]byte(text), read) != nil {
		return &lease.Failover{Cause: "annotation " + naming.AnnotationLeaseFailover + " of the Lease is no record of a failover"}
	}
	return read
}
