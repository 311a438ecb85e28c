package reconciler

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/observe"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/render"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// shelf holds one cluster, as the cache shows it, and accepts every write. What a server does is tested in test/ssa.
type shelf struct {
	client.Reader
	cluster v1alpha1.PostgresCluster
	// liveGeneration is the cluster's generation in the API server.
	liveGeneration int64
	set            *appsv1.StatefulSet
	claims         []corev1.PersistentVolumeClaim
	pods           []corev1.Pod
	applied        map[string]int
	deleted        int
	status         *v1alpha1.PostgresClusterStatus
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.PostgresCluster:
		s.cluster.DeepCopyInto(object)
	case *metav1.PartialObjectMetadata:
		if object.Kind == "Secret" || object.Kind == "Lease" {
			return apierrors.NewNotFound(schema.GroupResource{Resource: object.Kind}, key.Name)
		}
		s.cluster.ObjectMeta.DeepCopyInto(&object.ObjectMeta)
		object.Generation = s.liveGeneration
	}
	return nil
}

func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *appsv1.StatefulSetList:
		if s.set != nil {
			list.Items = []appsv1.StatefulSet{*s.set}
		}
	case *corev1.PodList:
		list.Items = s.pods
	case *corev1.PersistentVolumeClaimList:
		list.Items = s.claims
	}
	return nil
}

func (s *shelf) Apply(_ context.Context, configuration runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	object := configuration.(interface {
		metav1.Object
		GetKind() string
	})
	s.applied[object.GetKind()]++
	object.SetUID("made")
	object.SetResourceVersion("9")
	return nil
}

func (s *shelf) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	s.applied[object.GetName()]++
	return nil
}

func (s *shelf) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	s.deleted++
	return nil
}

func (s *shelf) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

type statusShelf struct{ *shelf }

func (s statusShelf) Apply(
	_ context.Context, configuration runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	if err != nil {
		return err
	}
	written := &v1alpha1.PostgresCluster{}
	s.status = &written.Status
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, written)
}

type bed struct {
	*Reconciler
	shelf *shelf
	clock time.Time
}

func newBed(change func(*v1alpha1.PostgresClusterSpec)) *bed {
	replicas := int32(1)
	b := &bed{
		shelf: &shelf{
			liveGeneration: 4, applied: map[string]int{},
			cluster: v1alpha1.PostgresCluster{
				ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "1", Generation: 4, ResourceVersion: "5"},
				Spec: v1alpha1.PostgresClusterSpec{
					Replicas: &replicas, Version: "17", Storage: "20Gi", DeletionPolicy: v1alpha1.DeletionPolicyRetain,
				},
			},
		},
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if change != nil {
		change(&b.shelf.cluster.Spec)
	}
	now := func() time.Time { return b.clock }
	b.Reconciler = &Reconciler{
		options: Options{Images: map[string]string{"17": "postgres:17"}},
		cache:   b.shelf, live: b.shelf, now: now, recorder: events.NewFakeRecorder(100), objects: render.Objects,
		applier: apply.New(b.shelf, b.shelf, naming.FieldManager, former, yields, now),
		status:  statusShelf{b.shelf},
		observer: &observe.Observer{
			Cache: b.shelf, Live: b.shelf, CertManager: func(context.Context) bool { return true },
		},
	}
	return b
}

func (b *bed) pass(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&b.shelf.cluster)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b *bed) ready(t *testing.T) metav1.Condition {
	t.Helper()
	if b.shelf.status == nil {
		t.Fatal("no status was written")
	}
	return *meta.FindStatusCondition(b.shelf.status.Conditions, v1alpha1.ConditionReady)
}

// TestNothingIsDueWhileNothingIsApplied: what was ensured before a pause gets old, and nobody ensures it then.
func TestNothingIsDueWhileNothingIsApplied(t *testing.T) {
	tests := map[string]func(*v1alpha1.PostgresClusterSpec){
		"paused":  func(spec *v1alpha1.PostgresClusterSpec) { spec.Paused = true },
		"invalid": func(spec *v1alpha1.PostgresClusterSpec) { spec.Storage = "much" },
	}
	for name, stop := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(nil)
			b.pass(t)
			if b.shelf.applied["db-app"] != 1 {
				t.Fatalf("the Secret was not ensured: %v", b.shelf.applied)
			}
			before := len(b.shelf.applied)
			stop(&b.shelf.cluster.Spec)
			b.shelf.cluster.ResourceVersion, b.shelf.cluster.Generation = "6", 5
			b.clock = b.clock.Add(time.Hour)
			if wait := b.pass(t).RequeueAfter; wait < time.Minute {
				t.Errorf("looks again after %s", wait)
			}
			if len(b.shelf.applied) != before {
				t.Errorf("applied %v", b.shelf.applied)
			}
		})
	}
}

// TestFightsAreTriedAgainWhenTheyAreForgotten, and not by the short delay of other refusals.
func TestFightsAreTriedAgainWhenTheyAreForgotten(t *testing.T) {
	contested := outcome.Failure{Class: outcome.ClassContested, RetryAfter: 7 * time.Minute}
	result := &outcome.Result{Failures: []outcome.Failure{contested}}
	if wait := delay(decide.Plan{}, result); wait != 7*time.Minute {
		t.Errorf("tries again after %s", wait)
	}
	result.Failures = append(result.Failures, outcome.Failure{Class: outcome.ClassDeleting})
	if wait := delay(decide.Plan{}, result); wait != outcome.ClassDeleting.Delay() {
		t.Errorf("with another failure: tries again after %s", wait)
	}
}

// TestVolumesAreLetGoWhilePaused: a pause must not cost the data of whoever asks to keep it.
func TestVolumesAreLetGoWhilePaused(t *testing.T) {
	b := newBed(func(spec *v1alpha1.PostgresClusterSpec) { spec.Paused = true })
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data-db-0", Namespace: "ns", UID: "claim", ResourceVersion: "3",
		OwnerReferences: []metav1.OwnerReference{{Kind: "PostgresCluster", Name: "db", UID: "1", Controller: new(true)}},
	}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
	b.shelf.claims = []corev1.PersistentVolumeClaim{claim}
	b.pass(t)
	if len(b.shelf.applied) != 1 || b.shelf.applied["PersistentVolumeClaim"] != 1 {
		t.Errorf("applied %v, want the claim alone", b.shelf.applied)
	}
}

// TestGenerationFromTheFuture: only the API server can tell a cache that is behind from an annotation that lies.
func TestGenerationFromTheFuture(t *testing.T) {
	for name, test := range map[string]struct {
		live    int64
		applied int
	}{"the cache is behind": {live: 999}, "somebody wrote it": {live: 4, applied: 1}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(nil)
			b.shelf.liveGeneration = test.live
			b.shelf.set = statefulSet("999")
			if wait := b.pass(t).RequeueAfter; wait <= 0 {
				t.Error("nobody looks again")
			}
			if b.shelf.applied["StatefulSet"] != test.applied {
				t.Errorf("applied %v", b.shelf.applied)
			}
		})
	}
}

// TestLostLeaseComesBackAtOnce: agents cannot create it, and a cluster without it cannot fail over.
func TestLostLeaseComesBackAtOnce(t *testing.T) {
	b := newBed(nil)
	b.shelf.set = statefulSet("4")
	ready := func(report, version string) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "db-0", Namespace: "ns", UID: "pod", ResourceVersion: version,
			Annotations:     map[string]string{naming.AnnotationReport: report},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "set", Controller: new(true)}},
		}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		b.shelf.pods = []corev1.Pod{pod}
	}
	ready(`{"role":"Primary","state":"Running"}`, "1")
	b.pass(t)
	b.clock = b.clock.Add(2 * time.Second)
	ready(`{"role":"Primary","state":"Running","leaseMissing":true}`, "2")
	wait := b.pass(t).RequeueAfter
	if b.shelf.applied["db"] != 2 {
		t.Errorf("the Lease was made %d times", b.shelf.applied["db"])
	}
	if b.shelf.applied["db-app"] != 1 {
		t.Error("a Secret that nobody misses was made again")
	}
	if wait > ensureTrouble {
		t.Errorf("looks again after %s", wait)
	}
}

func statefulSet(generation string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Name: "db", Namespace: "ns", UID: "set", ResourceVersion: "3",
		Annotations:     map[string]string{naming.AnnotationGeneration: generation},
		OwnerReferences: []metav1.OwnerReference{{Kind: "PostgresCluster", Name: "db", UID: "1", Controller: new(true)}},
	}}
}

// renderedHash is that of the pod template of a bed's cluster.
func renderedHash(t *testing.T) (hash string) {
	t.Helper()
	b := newBed(nil)
	b.objects = func(s *snapshot.Cluster, plan decide.Plan, config render.Config) ([]runtime.ApplyConfiguration, error) {
		hash = plan.TemplateHash
		return render.Objects(s, plan, config)
	}
	b.pass(t)
	return hash
}

// TestADeletedPodIsNotSeenAgain: until the cache shows the end of a pod that the operator deleted, what it shows of the
// cluster is not so any more.
func TestADeletedPodIsNotSeenAgain(t *testing.T) {
	hash := renderedHash(t)
	b := newBed(nil)
	b.shelf.set = statefulSet("4")
	b.shelf.set.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: hash}
	pod := func(change func(*corev1.Pod)) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "db-0", Namespace: "ns", UID: "pod", ResourceVersion: "1",
			Annotations:     map[string]string{naming.AnnotationTemplateHash: "older", naming.AnnotationReport: `{"role":"Primary","state":"Running"}`},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "set", Controller: new(true)}},
		}}
		change(&p)
		b.shelf.pods = []corev1.Pod{p}
	}
	pod(func(*corev1.Pod) {})
	b.pass(t)
	if b.shelf.deleted != 1 {
		t.Fatalf("%d pods were deleted", b.shelf.deleted)
	}
	// The template is as it was when the pod was made, and the pod is still shown.
	pod(func(p *corev1.Pod) { p.Annotations[naming.AnnotationTemplateHash] = hash })
	b.shelf.status = nil
	if wait := b.pass(t).RequeueAfter; wait <= 0 || b.shelf.status != nil {
		t.Errorf("the status was written from a cache that is behind; looks again after %s", wait)
	}
	pod(func(p *corev1.Pod) { p.DeletionTimestamp, p.ResourceVersion = &metav1.Time{Time: b.clock}, "2" })
	b.clock = b.clock.Add(2 * time.Second)
	if b.pass(t); b.shelf.status == nil {
		t.Error("the cache has caught up, and no status was written")
	}
}

// TestConditionsOfOthersAreLeftToThem, and cause no writes.
func TestConditionsOfOthersAreLeftToThem(t *testing.T) {
	b := newBed(nil)
	b.shelf.set = statefulSet("4")
	foreign := metav1.Condition{Type: "Audited", Status: metav1.ConditionTrue, Reason: "Seen"}
	b.shelf.cluster.Status.Conditions = []metav1.Condition{foreign}
	b.pass(t)
	if len(b.shelf.status.Conditions) != 5 || meta.FindStatusCondition(b.shelf.status.Conditions, foreign.Type) != nil {
		t.Errorf("conditions %v", b.shelf.status.Conditions)
	}
	b.shelf.cluster.Status = *b.shelf.status
	b.shelf.cluster.Status.Conditions = append(b.shelf.cluster.Status.Conditions, foreign)
	b.shelf.cluster.ResourceVersion, b.shelf.status = "10", nil
	b.clock = b.clock.Add(time.Minute)
	if b.pass(t); b.shelf.status != nil {
		t.Errorf("the same status was written again: %v", b.shelf.status)
	}
}

// TestStatusTellsOfAnIntentThatCannotBeRendered: the log alone would not reach the user.
func TestStatusTellsOfAnIntentThatCannotBeRendered(t *testing.T) {
	b := newBed(nil)
	b.objects = func(*snapshot.Cluster, decide.Plan, render.Config) ([]runtime.ApplyConfiguration, error) {
		return nil, errors.New("no such luck")
	}
	if wait := b.pass(t).RequeueAfter; wait <= 0 {
		t.Error("nobody looks again")
	}
	if ready := b.ready(t); ready.Reason != v1alpha1.ReasonApplyFailed ||
		ready.Message != `PostgresCluster "db": rendering: no such luck` {
		t.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
	}
}
