package status_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

var (
	config = decide.Config{Images: map[string]string{"17": "postgres:17"}, LeaseDuration: 10 * time.Second}
	now    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// healthy is a cluster of two instances that is as its spec says, and was so before.
func healthy() *snapshot.Cluster {
	replicas := int32(2)
	hash := map[string]string{naming.AnnotationTemplateHash: "h"}
	s := &snapshot.Cluster{
		Object: &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "1", Generation: 4},
			Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "20Gi"},
		},
		StatefulSet: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			Name: "db", UID: "set", Generation: 2, Annotations: map[string]string{naming.AnnotationGeneration: "4"},
			OwnerReferences: []metav1.OwnerReference{{UID: "1", Kind: "PostgresCluster", Name: "db", Controller: new(true)}},
		}},
		StorageClasses: []string{"standard"}, DefaultStorageClass: "standard",
	}
	s.StatefulSet.Spec.Replicas = &replicas
	s.StatefulSet.Spec.Template.Annotations = hash
	s.StatefulSet.Status.ObservedGeneration = 2
	s.Object.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReplicasReady,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
	}}
	settings := decide.Next(s, config, now).SettingsHash
	for ordinal := range replicas {
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
		volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: s.Names().PVC(ordinal)}}
		volume.Spec.Resources.Requests, volume.Status.Capacity, volume.Status.Phase = size, size, corev1.ClaimBound
		role := contract.RoleReplica
		if ordinal == 0 {
			role = contract.RolePrimary
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Names().Instance(ordinal), Annotations: hash}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: naming.ContainerPostgres, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
		s.Instances = append(s.Instances, snapshot.Instance{
			Name: pod.Name, Ordinal: ordinal, Claim: volume, Pod: pod,
			Report: &contract.Report{
				Role: role, State: contract.StateRunning, Term: 1, Timeline: 1, SystemID: "42", DataVersion: "17", SettingsHash: settings,
			},
		})
	}
	return s
}

// next is the plan of a cluster whose template has not changed.
func next(s *snapshot.Cluster) decide.Plan {
	plan := decide.Next(s, config, now)
	plan.TemplateHash = "h"
	return plan
}

func notReady(s *snapshot.Cluster, ordinal int) {
	s.Instances[ordinal].Pod.Status.Conditions[0].Status = corev1.ConditionFalse
}

func fails(s *snapshot.Cluster, ordinal int) {
	notReady(s, ordinal)
	report := s.Instances[ordinal].Report
	report.State, report.Message = contract.StateFailed, "another system identifier"
}

func unschedulable(s *snapshot.Cluster, ordinal int) {
	notReady(s, ordinal)
	pod := s.Instances[ordinal].Pod
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node",
	})
}

// certificate is one that stopped being issued at a time.
func certificate(since time.Time) []*cmv1.Certificate {
	c := &cmv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "db-server", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	c.Status.Conditions = []cmv1.CertificateCondition{{
		Type: cmv1.CertificateConditionReady, Status: cmmetav1.ConditionFalse, LastTransitionTime: &metav1.Time{Time: since},
	}}
	return []*cmv1.Certificate{c}
}

func failed(class outcome.Class, kind, group, message string) outcome.Result {
	result := outcome.Result{}
	result.Fail(outcome.Key{GroupKind: schema.GroupKind{Group: group, Kind: kind}, Name: "db"},
		outcome.Failure{Class: class, Message: message, Err: errors.New("x")})
	return result
}

func TestCompute(t *testing.T) {
	one, three := int32(1), int32(3)
	tests := map[string]struct {
		change func(*snapshot.Cluster)
		result outcome.Result
		// reason of Ready, which is True only for AllReplicasReady.
		reason string
		// others are the conditions that are True, besides Ready.
		others  string
		message string
	}{
		"as the spec says": {reason: v1alpha1.ReasonAllReplicasReady, message: "2 of 2 instances are ready"},
		"brand-new": {
			change: func(s *snapshot.Cluster) {
				s.StatefulSet, s.Instances, s.Object.Status.Conditions = nil, nil, nil
			},
			reason: v1alpha1.ReasonProvisioning, others: "Progressing", message: "0 of 2",
		},
		"a generation that is not rendered": {
			change: func(s *snapshot.Cluster) { s.Object.Generation = 5 },
			reason: v1alpha1.ReasonUpdating, others: "Progressing",
		},
		"a StatefulSet that its controller has not seen": {
			change: func(s *snapshot.Cluster) { s.StatefulSet.Generation = 3 },
			reason: v1alpha1.ReasonUpdating, others: "Progressing",
		},
		"a pod from an older template": {
			change: func(s *snapshot.Cluster) {
				s.Instances[1].Pod.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
			},
			reason: v1alpha1.ReasonUpdating, others: "Progressing",
		},
		"older settings in force": {
			change: func(s *snapshot.Cluster) { s.Instances[1].Report.SettingsHash = "old" },
			reason: v1alpha1.ReasonUpdating, others: "Progressing",
		},
		"settings that wait for a restart": {
			change: func(s *snapshot.Cluster) { s.Instances[0].Report.PendingRestart = []string{"max_connections"} },
			reason: v1alpha1.ReasonUpdating, others: "Progressing",
		},
		"a replica is down": {
			change: func(s *snapshot.Cluster) { notReady(s, 1) },
			reason: v1alpha1.ReasonHealing, others: "Progressing Degraded", message: "1 of 2 instances are ready: db-1 is not ready",
		},
		"the primary is down": {
			change: func(s *snapshot.Cluster) { notReady(s, 0) },
			reason: v1alpha1.ReasonNoPrimary, others: "Progressing Degraded",
		},
		"the primary is restarted for an update": {
			change: func(s *snapshot.Cluster) {
				s.Object.Status.Conditions[0].Reason = v1alpha1.ReasonUpdating
				notReady(s, 0)
			},
			reason: v1alpha1.ReasonUpdating, others: "Progressing Degraded",
		},
		"nothing is up": {
			change: func(s *snapshot.Cluster) { notReady(s, 0); notReady(s, 1) },
			reason: v1alpha1.ReasonNoPrimary, others: "Progressing Degraded",
		},
		"scaling up": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Replicas, s.Object.Generation = &three, 5 },
			reason: v1alpha1.ReasonScaling, others: "Progressing",
		},
		"scaling down": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Replicas, s.Object.Generation = &one, 5 },
			reason: v1alpha1.ReasonScaling, others: "Progressing",
		},
		"volumes are growing": {
			change: func(s *snapshot.Cluster) {
				s.Instances[1].Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
			},
			reason: v1alpha1.ReasonResizing, others: "Progressing",
		},
		"paused": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Paused = true },
			reason: v1alpha1.ReasonAllReplicasReady, others: "Paused", message: "2 of 2",
		},
		"paused by a generation that changes nothing else": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Paused, s.Object.Generation = true, 5 },
			reason: v1alpha1.ReasonAllReplicasReady, others: "Paused",
		},
		"the number of instances changed while paused": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Paused, s.Object.Spec.Replicas = true, &three },
			reason: v1alpha1.ReasonPaused, others: "Paused", message: "2 of 3 instances are ready: db-2 is missing",
		},
		"the template changed while paused": {
			change: func(s *snapshot.Cluster) {
				s.Object.Spec.Paused = true
				s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
			},
			reason: v1alpha1.ReasonPaused, others: "Paused",
		},
		"settings changed while paused": {
			change: func(s *snapshot.Cluster) {
				s.Object.Spec.Paused, s.Object.Spec.Parameters = true, map[string]string{"work_mem": "8MB"}
			},
			reason: v1alpha1.ReasonPaused, others: "Paused", message: "db-0 has other settings in force",
		},
		"storage changed while paused": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Paused, s.Object.Spec.Storage = true, "30Gi" },
			reason: v1alpha1.ReasonPaused, others: "Paused", message: "db-0 has 20Gi of 30Gi",
		},
		"a replica is down while paused: others heal it": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Paused = true; notReady(s, 1) },
			reason: v1alpha1.ReasonHealing, others: "Progressing Degraded Paused",
		},
		"an instance fails while paused": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Paused = true; fails(s, 1) },
			reason: v1alpha1.ReasonInstanceFailed, others: "Degraded Stalled Paused",
		},
		"deleting": {
			change: func(s *snapshot.Cluster) { s.Object.DeletionTimestamp = &metav1.Time{Time: now} },
			reason: v1alpha1.ReasonDeleting, others: "Progressing",
		},
		"an invalid spec: paths and never values": {
			change: func(s *snapshot.Cluster) {
				s.Invalid = field.ErrorList{field.Invalid(field.NewPath("spec", "parameters"), "secret", "is bad")}
			},
			reason: v1alpha1.ReasonInvalidSpec, others: "Stalled", message: "spec.parameters (invalid value)",
		},
		"a foreign object": {
			result: failed(outcome.ClassForeign, "Service", "", "exists"),
			reason: v1alpha1.ReasonNameConflict, others: "Stalled", message: `Service "db": exists`,
		},
		"no cert-manager": {
			result: failed(outcome.ClassNoKind, "Certificate", "cert-manager.io", "no matches"),
			reason: v1alpha1.ReasonCertManagerMissing, others: "Stalled", message: "install cert-manager",
		},
		"quota": {
			result: failed(outcome.ClassQuota, "PersistentVolumeClaim", "", "exceeded quota: q"),
			reason: v1alpha1.ReasonQuotaExceeded, others: "Stalled", message: "exceeded quota: q",
		},
		"a volume that cannot grow": {
			result: failed(outcome.ClassForbidden, "PersistentVolumeClaim", "", "the storageclass must support resize"),
			reason: v1alpha1.ReasonResizeRefused, others: "Stalled", message: "set spec.storage back",
		},
		"a field the server does not know": {
			result: failed(outcome.ClassUnsupported, "StatefulSet", "apps", "field not declared in schema"),
			reason: v1alpha1.ReasonUnsupportedByServer, others: "Stalled",
		},
		"a call that nobody answered": {
			result: failed(outcome.ClassTransient, "Service", "", ""),
			reason: v1alpha1.ReasonApplyFailed, others: "Progressing", message: `Service "db": could not be applied; it is tried again`,
		},
		"a call that failed in the server": {
			result: failed(outcome.ClassTransient, "Service", "", "provided range is full"),
			reason: v1alpha1.ReasonApplyFailed, others: "Progressing",
			message: `Service "db": could not be applied: provided range is full; it is tried again`,
		},
		"a field fought over": {
			result: failed(outcome.ClassContested, "Service", "", "keeps being changed"),
			reason: v1alpha1.ReasonContested, others: "Stalled", message: `Service "db": keeps being changed`,
		},
		"a field fought over while a replica is down": {
			change: func(s *snapshot.Cluster) { notReady(s, 1) },
			result: failed(outcome.ClassContested, "Service", "", "keeps being changed"),
			reason: v1alpha1.ReasonHealing, others: "Progressing Degraded Stalled", message: "db-1",
		},
		"a StatefulSet of another program": {
			result: failed(outcome.ClassImmutable, "StatefulSet", "apps", "spec.selector, spec.serviceName"),
			reason: v1alpha1.ReasonNameConflict, others: "Stalled", message: "another spec.selector, spec.serviceName",
		},
		"a child that changed at the same moment": {
			result: failed(outcome.ClassStale, "Service", "", "modified"),
			reason: v1alpha1.ReasonApplyFailed, others: "Progressing", message: `Service "db": was changed`,
		},
		"a child that is being deleted": {
			result: failed(outcome.ClassDeleting, "Service", "", "is being deleted"),
			reason: v1alpha1.ReasonApplyFailed, others: "Progressing", message: `Service "db": is being deleted`,
		},
		"a failed call does not hide what somebody must act on": {
			change: func(s *snapshot.Cluster) { fails(s, 1) },
			result: failed(outcome.ClassTransient, "Service", "", "x"),
			reason: v1alpha1.ReasonInstanceFailed, others: "Degraded Stalled",
		},
		"an agent that needs help": {
			change: func(s *snapshot.Cluster) { fails(s, 1) },
			reason: v1alpha1.ReasonInstanceFailed, others: "Degraded Stalled", message: "instance db-1: another system identifier",
		},
		"settings that PostgreSQL refuses": {
			change: func(s *snapshot.Cluster) { s.Instances[0].Report.SettingsError = `invalid value for "work_mem"` },
			reason: v1alpha1.ReasonInstanceFailed, others: "Stalled", message: "work_mem",
		},
		"settings that were refused and are corrected": {
			change: func(s *snapshot.Cluster) {
				report := s.Instances[0].Report
				report.SettingsError, report.SettingsRefused, report.SettingsHash = "invalid value", "older", "older still"
			},
			reason: v1alpha1.ReasonUpdating, others: "Progressing",
		},
		"a pod that cannot start, and is replaced by one of the present template": {
			change: func(s *snapshot.Cluster) {
				unschedulable(s, 1)
				s.Instances[1].Pod.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
			},
			reason: v1alpha1.ReasonHealing, others: "Progressing Degraded", message: "db-1 is not ready",
		},
		"a pod that cannot start, of the present template": {
			change: func(s *snapshot.Cluster) { unschedulable(s, 1) },
			reason: v1alpha1.ReasonUnschedulable, others: "Degraded Stalled", message: `Pod "db-1": no node`,
		},
		"pods that were refused for an older template": {
			change: func(s *snapshot.Cluster) {
				s.Instances[1].Pod, s.Instances[1].Report = nil, nil
				s.Refusals = []snapshot.Refusal{{Object: "Pod", Message: `pods "db-1" is forbidden: exceeded quota: q`}}
				s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
			},
			reason: v1alpha1.ReasonUpdating, others: "Progressing Degraded", message: "db-1 is missing",
		},
		"pods that are refused": {
			change: func(s *snapshot.Cluster) {
				s.Instances[1].Pod, s.Instances[1].Report = nil, nil
				s.Refusals = []snapshot.Refusal{{Object: "Pod", Message: `pods "db-1" is forbidden: exceeded quota: q`}}
			},
			reason: v1alpha1.ReasonQuotaExceeded, others: "Degraded Stalled", message: "exceeded quota: q",
		},
		"an image that cannot be pulled for a pod that is replaced": {
			change: func(s *snapshot.Cluster) {
				notReady(s, 1)
				s.Instances[1].Pod.Annotations = nil
				s.Refusals = []snapshot.Refusal{{Object: `Pod "db-1"`, Image: "bad", Instance: "db-1"}}
			},
			reason: v1alpha1.ReasonHealing, others: "Progressing Degraded",
		},
		"an instance is lost while another is added": {
			change: func(s *snapshot.Cluster) {
				s.Object.Spec.Replicas, s.Object.Generation = &three, 5
				s.Object.Status.Conditions[0].Reason = v1alpha1.ReasonScaling
				fails(s, 1)
				s.Instances[1].Report.Message = ""
				s.Instances[1].Pod.DeletionTimestamp = &metav1.Time{Time: now}
			},
			reason: v1alpha1.ReasonScaling, others: "Progressing Degraded", message: "1 of 3",
		},
		"a certificate is issued again": {
			change: func(s *snapshot.Cluster) { s.Certificates = certificate(now.Add(-time.Second)) },
			reason: v1alpha1.ReasonCertificateNotReady, others: "Progressing", message: "Certificate db-server is not issued",
		},
		"a certificate is not issued again": {
			change: func(s *snapshot.Cluster) { s.Certificates = certificate(now.Add(-time.Minute)) },
			reason: v1alpha1.ReasonCertificateNotReady, others: "Stalled", message: `Certificate "db-server"`,
		},
		"a replica's volume is deleted under it": {
			change: func(s *snapshot.Cluster) { s.Instances[1].Claim.DeletionTimestamp = &metav1.Time{Time: now} },
			reason: v1alpha1.ReasonVolumeLost, others: "Stalled", message: `delete Pod "db-1"`,
		},
		"the primary's volume is deleted under it": {
			change: func(s *snapshot.Cluster) { s.Instances[0].Claim.DeletionTimestamp = &metav1.Time{Time: now} },
			reason: v1alpha1.ReasonVolumeLost, others: "Stalled", message: "switchover), or dump the database",
		},
		"no default StorageClass": {
			change: func(s *snapshot.Cluster) {
				s.DefaultStorageClass = ""
				s.Instances[1].Claim.Status.Phase = corev1.ClaimPending
			},
			reason: v1alpha1.ReasonStorageClassMissing, others: "Stalled", message: "data-db-1",
		},
		"data of another major version": {
			change: func(s *snapshot.Cluster) { s.Object.Spec.Version = "18" },
			reason: v1alpha1.ReasonMajorUpgradePending, others: "Stalled",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			if test.change != nil {
				test.change(s)
			}
			plan := next(s)
			got, _ := status.Compute(s, plan, &test.result, now)
			ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
			if ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) {
				t.Errorf("Ready is %s: %s; want %s: %s", ready.Reason, ready.Message, test.reason, test.message)
			}
			var others []string
			for _, condition := range got.Conditions {
				if condition.ObservedGeneration != s.Object.Generation {
					t.Errorf("%s is of generation %d", condition.Type, condition.ObservedGeneration)
				}
				if condition.Type != v1alpha1.ConditionReady && condition.Status == metav1.ConditionTrue {
					others = append(others, condition.Type)
				}
			}
			if strings.Join(others, " ") != test.others {
				t.Errorf("True are %v, want %s", others, test.others)
			}
			if wantReady := test.reason == v1alpha1.ReasonAllReplicasReady; wantReady != (ready.Status == metav1.ConditionTrue) {
				t.Errorf("Ready is %s", ready.Status)
			}
			stalled := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionStalled)
			if stalled.Status == metav1.ConditionTrue && !blocking.MatchString(stalled.Message) {
				t.Errorf("the message names no object: %s", stalled.Message)
			}
			checkRules(t, s, got)
		})
	}
}

// blocking is what stands in the way: an object, an instance, or a field of the spec.
var blocking = regexp.MustCompile(`^[A-Z]\w+ "[^"]+": |^Pod: pods "[^"]+" |\binstance [a-z0-9-]+|\bspec\.\w+`)

// TestStatusIsStable: a pass over what the last pass stored changes nothing, however late, and tells nothing.
func TestStatusIsStable(t *testing.T) {
	s := healthy()
	notReady(s, 1)
	plan := next(s)
	first, told := status.Compute(s, plan, &outcome.Result{}, now)
	if len(told) == 0 || told[0].Reason != v1alpha1.ReasonHealing || told[0].Type != corev1.EventTypeWarning {
		t.Errorf("events %v", told)
	}
	s.Object.Status = first
	slices.Reverse(s.Instances)
	s.Sort()
	plan = next(s)
	second, told := status.Compute(s, plan, &outcome.Result{}, now.Add(time.Hour))
	if len(told) != 0 {
		t.Errorf("events at rest: %v", told)
	}
	for i := range first.Conditions {
		if first.Conditions[i] != second.Conditions[i] {
			t.Errorf("condition changed from %v to %v", first.Conditions[i], second.Conditions[i])
		}
	}
}

// TestEventsFit: the API server takes no note of more than 1024 bytes.
func TestEventsFit(t *testing.T) {
	s := healthy()
	unschedulable(s, 1)
	s.Instances[1].Pod.Status.Conditions[1].Message = strings.Repeat("ä", 1000)
	_, told := status.Compute(s, next(s), &outcome.Result{}, now)
	if len(told) == 0 {
		t.Fatal("no events")
	}
	for _, event := range told {
		if len(event.Message) > 1024 || !utf8.ValidString(event.Message) {
			t.Errorf("%d bytes: %q", len(event.Message), event.Message)
		}
	}
}
