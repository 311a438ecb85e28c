package status_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

var (
	cases    = flag.Int("status.cases", 4000, "number of random clusters")
	caseSeed = flag.Uint64("status.seed", 1, "seed of the first random cluster; the others count up")
)

// TestStatusOfRandomClusters compares the status with a small model of what may be said of a cluster.
func TestStatusOfRandomClusters(t *testing.T) {
	said := map[string]int{}
	for i := range *cases {
		seed := *caseSeed + uint64(i)
		s, result := randomCluster(rand.New(rand.NewPCG(seed, 0)))
		before := slices.Clone(s.Object.Status.Conditions)
		plan := next(s)
		got, _ := status.Compute(s, plan, &result, now)
		t.Run("", func(t *testing.T) {
			checkRules(t, s, got)
			checkModel(t, s, plan, &result, got)
			checkTimes(t, before, got.Conditions, now)
			checkStable(t, s, &result, got)
			if t.Failed() {
				t.Fatalf("replay with -status.seed=%d -status.cases=1; the status is %s", seed, worded(got.Conditions))
			}
		})
		if t.Failed() {
			return
		}
		said[meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady).Reason]++
	}
	t.Logf("reasons of Ready: %v", said)
	if *cases >= 1000 && (len(said) < 15 || said[v1alpha1.ReasonAllReplicasReady] < *cases/50) {
		t.Errorf("the clusters are not random enough: %v", said)
	}
}

// randomCluster is a cluster as its spec says, and then a few things that are not.
func randomCluster(r *rand.Rand) (*snapshot.Cluster, outcome.Result) {
	s := healthy()
	result := outcome.Result{}
	if r.IntN(4) == 0 {
		s.Object.Status.Conditions = nil
	} else {
		reasons := slices.Sorted(slices.Values(declaredReasons()))
		s.Object.Status.Conditions[0].Reason = reasons[r.IntN(len(reasons))]
		s.Object.Status.SystemID = "42"
	}
	ordinary, cluster := instanceChanges(), clusterChanges()
	for range r.IntN(4) {
		if r.IntN(2) == 0 {
			ordinary[r.IntN(len(ordinary))](&s.Instances[r.IntN(len(s.Instances))])
		} else {
			cluster[r.IntN(len(cluster))](s, &result)
		}
	}
	return s, result
}

func instanceChanges() []func(*snapshot.Instance) {
	report := func(change func(*contract.Report)) func(*snapshot.Instance) {
		return func(i *snapshot.Instance) {
			if i.Report != nil {
				change(i.Report)
			}
		}
	}
	pod := func(change func(*corev1.Pod)) func(*snapshot.Instance) {
		return func(i *snapshot.Instance) {
			if i.Pod != nil {
				change(i.Pod)
			}
		}
	}
	changes := []func(*snapshot.Instance){
		func(i *snapshot.Instance) { i.Pod, i.Report = nil, nil },
		func(i *snapshot.Instance) { i.Claim = nil },
		func(i *snapshot.Instance) { i.Report = nil },
		pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }),
		pod(func(p *corev1.Pod) { p.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"} }),
		pod(func(p *corev1.Pod) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
		}),
		pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse},
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: strings.Repeat("ä", 2000)},
			}
		}),
		report(func(r *contract.Report) { r.SettingsHash = "other" }),
		report(func(r *contract.Report) { r.PendingRestart = []string{"max_connections"} }),
		report(func(r *contract.Report) { r.SettingsError = "invalid value" }),
		report(func(r *contract.Report) {
			r.SettingsError, r.SettingsRefused, r.SettingsHash = "invalid value", "older", "x"
		}),
		report(func(r *contract.Report) { r.SystemID = "43" }),
		report(func(r *contract.Report) { r.DataVersion = "16" }),
		report(func(r *contract.Report) { r.Role = contract.RolePrimary }),
		report(func(r *contract.Report) { r.Role, r.Term = contract.RolePrimary, 2 }),
		report(func(r *contract.Report) { r.LeaseMissing = true }),
		report(func(r *contract.Report) { r.Waiting, r.Message = contract.WaitingForLease, "db-0 is silent" }),
		report(func(r *contract.Report) {
			r.State, r.Waiting, r.WaitingSince = contract.StateWaiting, contract.WaitingForQuorum, now.Add(-time.Hour)
		}),
		report(func(r *contract.Report) { r.Waiting, r.WaitingSince = "Godot", now.Add(-time.Second) }),
		report(func(r *contract.Report) { r.LastFailover = takenOver(2) }),
		func(i *snapshot.Instance) {
			if i.Claim != nil {
				i.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
			}
		},
		func(i *snapshot.Instance) {
			if i.Claim != nil {
				i.Claim.Status.Phase, i.Claim.Status.Capacity = corev1.ClaimPending, nil
			}
		},
		func(i *snapshot.Instance) {
			if i.Claim != nil {
				i.Claim.DeletionTimestamp = &metav1.Time{Time: now}
			}
		},
	}
	for _, state := range []contract.State{
		contract.StateWaiting, contract.StateCloning, contract.StateStarting, contract.StateNotStreaming, contract.StateFailed,
	} {
		changes = append(changes, report(func(r *contract.Report) { r.State, r.Message = state, "x" }))
	}
	return changes
}

func clusterChanges() []func(*snapshot.Cluster, *outcome.Result) {
	changes := []func(*snapshot.Cluster, *outcome.Result){
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Generation++ },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Spec.Paused = true; s.Object.Generation++ },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Spec.Paused = true },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Spec.Replicas = new(int32(1)) },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Spec.Replicas = new(int32(3)) },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Spec.Storage = "30Gi" },
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Object.Spec.Synchronous = &v1alpha1.SynchronousReplication{Mode: v1alpha1.SynchronousModeQuorum}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Object.Annotations = map[string]string{naming.AnnotationSwitchover: naming.SwitchoverAny}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Object.Annotations = map[string]string{naming.AnnotationSwitchover: "db-7@" + strings.Repeat("ä", 300)}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Object.Status.HandOver = &v1alpha1.SwitchoverStatus{
				Request: "x", State: v1alpha1.SwitchoverRunning, From: "db-0", To: "db-1", Term: 1, StartedTime: &metav1.Time{Time: now},
			}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.Spec.Version = "18" },
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Object.Spec.Parameters = map[string]string{"work_mem": "8MB"}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Object.DeletionTimestamp = &metav1.Time{Time: now} },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.DefaultStorageClass, s.StorageClasses = "", nil },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Certificates = certificate(now.Add(-time.Second)) },
		func(s *snapshot.Cluster, _ *outcome.Result) { s.Certificates = certificate(now.Add(-time.Minute)) },
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Invalid = field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), 77, "is bad")}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Refusals = []snapshot.Refusal{{Object: "Pod", Message: "exceeded quota: q"}}
		},
		func(s *snapshot.Cluster, _ *outcome.Result) {
			s.Refusals = []snapshot.Refusal{{Object: `Pod "db-1", container postgres`, Image: "bad", Instance: "db-1"}}
		},
		set(func(s *snapshot.Cluster) { s.StatefulSet = nil }),
		set(func(s *snapshot.Cluster) { s.StatefulSet.OwnerReferences = nil }),
		set(func(s *snapshot.Cluster) { s.StatefulSet.DeletionTimestamp = &metav1.Time{Time: now} }),
		set(func(s *snapshot.Cluster) { s.StatefulSet.Generation++ }),
		set(func(s *snapshot.Cluster) { s.StatefulSet.Spec.Replicas = new(int32(4)) }),
		set(func(s *snapshot.Cluster) {
			s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
		}),
		set(func(s *snapshot.Cluster) { s.StatefulSet.Annotations[naming.AnnotationGeneration] = "5" }),
	}
	for _, class := range []outcome.Class{
		outcome.ClassForeign, outcome.ClassContested, outcome.ClassQuota, outcome.ClassForbidden, outcome.ClassNoKind,
		outcome.ClassUnsupported, outcome.ClassInvalid, outcome.ClassInternal, outcome.ClassTransient, outcome.ClassStale,
		outcome.ClassDeleting, outcome.ClassReplaced, outcome.ClassFieldConflict,
	} {
		changes = append(changes, func(_ *snapshot.Cluster, result *outcome.Result) {
			more := failed(class, "Service", "", "text")
			result.Failures = append(result.Failures, more.Failures...)
		})
	}
	return changes
}

func set(change func(*snapshot.Cluster)) func(*snapshot.Cluster, *outcome.Result) {
	return func(s *snapshot.Cluster, _ *outcome.Result) {
		if s.StatefulSet != nil {
			change(s)
		}
	}
}

// checkRules holds what is true of every status, for people and for programs.
func checkRules(t *testing.T, s *snapshot.Cluster, got v1alpha1.PostgresClusterStatus) {
	t.Helper()
	is := map[string]bool{}
	var types []string
	for _, c := range got.Conditions {
		types = append(types, c.Type)
		is[c.Type] = c.Status == metav1.ConditionTrue
		if c.ObservedGeneration != s.Object.Generation || c.LastTransitionTime.IsZero() {
			t.Errorf("%s is of generation %d since %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
		}
		if !slices.Contains(declaredReasons(), c.Reason) {
			t.Errorf("%s has the undeclared reason %q", c.Type, c.Reason)
		}
		if length := utf8.RuneCountInString(c.Message); length > 1024 || !utf8.ValidString(c.Message) {
			t.Errorf("%s has a message of %d characters", c.Type, length)
		}
		if is[c.Type] && c.Message == "" {
			t.Errorf("%s does not say why", c.Type)
		}
	}
	if strings.Join(types, " ") != "Ready Progressing Degraded Stalled Paused" || got.ObservedGeneration != s.Object.Generation {
		t.Errorf("conditions %v in generation %d", types, got.ObservedGeneration)
	}
	ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
	waits := 0
	for _, one := range []bool{
		is[v1alpha1.ConditionReady], is[v1alpha1.ConditionProgressing], is[v1alpha1.ConditionStalled],
		ready.Reason == v1alpha1.ReasonPaused,
	} {
		if one {
			waits++
		}
	}
	stalled := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionStalled)
	if waits == 2 && is[v1alpha1.ConditionStalled] && stalled.Reason == v1alpha1.ReasonContested {
		waits-- // A fight over one field, while all else goes on.
	}
	if waits != 1 || is[v1alpha1.ConditionReady] && is[v1alpha1.ConditionDegraded] ||
		is[v1alpha1.ConditionReady] != (ready.Reason == v1alpha1.ReasonAllReplicasReady) {
		t.Error("it contradicts itself")
	}
	if is[v1alpha1.ConditionStalled] && !strings.ContainsAny(stalled.Message, `"`) && !strings.Contains(stalled.Message, "db-") &&
		!strings.Contains(stalled.Message, "spec.") && !strings.Contains(stalled.Message, "Pod: ") {
		t.Errorf("it names no object: %s", stalled.Message)
	}
	if is[v1alpha1.ConditionPaused] != s.Object.Spec.Paused {
		t.Error("it does not tell whether it is paused")
	}
	want := kstatus.InProgressStatus
	switch {
	case s.Deleting():
		want = kstatus.TerminatingStatus
	case is[v1alpha1.ConditionReady]:
		want = kstatus.CurrentStatus
	case is[v1alpha1.ConditionStalled]:
		want = kstatus.FailedStatus
	}
	if k := judgedByKstatus(t, s.Object, got); k != want {
		t.Errorf("kstatus says %s, want %s", k, want)
	}
}

func judgedByKstatus(t *testing.T, cluster *v1alpha1.PostgresCluster, got v1alpha1.PostgresClusterStatus) kstatus.Status {
	t.Helper()
	cluster = cluster.DeepCopy()
	cluster.Status = got
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		t.Fatal(err)
	}
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// checkModel says of what cluster a status may say that it is ready, that it goes on, or that less serves.
func checkModel(
	t *testing.T, s *snapshot.Cluster, plan decide.Plan, result *outcome.Result, got v1alpha1.PostgresClusterStatus,
) {
	t.Helper()
	wrong := departures(s, plan)
	if len(result.Failures) > 0 {
		wrong = append(wrong, "a child is not applied")
	}
	ready := meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionReady)
	if ready && len(wrong) > 0 {
		t.Errorf("it is said to be ready although %v", wrong)
	}
	// What other controllers said is believed only while something is missing.
	if !ready && len(wrong) == 0 && len(s.Refusals) == 0 {
		t.Error("it is not said to be ready, and nothing is wrong")
	}
	degraded := meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionDegraded)
	serving := 0
	for _, instance := range s.Instances {
		if instance.Ordinal < min(*s.Object.Spec.Replicas, plan.Replicas) && instance.Ready() {
			serving++
		}
	}
	if least := int(min(*s.Object.Spec.Replicas, plan.Replicas)); degraded && serving >= least {
		t.Errorf("less is said to serve, and %d of %d do", serving, least)
	}
	if progressing := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionProgressing); progressing.Status == metav1.ConditionTrue &&
		len(wrong) == 0 && !s.Deleting() {
		t.Error("it is said to go on, and nothing is to be done")
	}
}

// departures are what is not as the spec says, fact by fact.
func departures(s *snapshot.Cluster, plan decide.Plan) []string {
	var wrong []string
	note := func(is bool, text string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(text, args...))
		}
	}
	note(s.Deleting(), "it is being deleted")
	note(len(s.Invalid) > 0, "its spec is invalid")
	for _, move := range []*v1alpha1.SwitchoverStatus{plan.Switchover, plan.HandOver} {
		note(move != nil && move.State == v1alpha1.SwitchoverRunning, "its primary hands over")
	}
	if set := s.StatefulSet; set == nil {
		wrong = append(wrong, "it has no StatefulSet")
	} else {
		note(len(set.OwnerReferences) == 0 || set.DeletionTimestamp != nil, "its StatefulSet is not its own")
		note(set.Annotations[naming.AnnotationGeneration] != strconv.FormatInt(s.Object.Generation, 10) && !s.Object.Spec.Paused,
			"its StatefulSet is of another generation")
		note(set.Status.ObservedGeneration < set.Generation, "its StatefulSet was not observed")
		note(*set.Spec.Replicas != *s.Object.Spec.Replicas, "its StatefulSet has other replicas")
		note(set.Spec.Template.Annotations[naming.AnnotationTemplateHash] != "h", "its StatefulSet has another template")
	}
	for _, c := range s.Certificates {
		note(len(c.Status.Conditions) > 0, "%s is not issued", c.Name)
	}
	primaries, pods := map[int32]int{}, int32(0)
	highest := int32(0)
	for _, i := range s.Instances {
		if i.Pod == nil {
			note(i.Ordinal < *s.Object.Spec.Replicas, "%s is missing", i.Name)
			continue
		}
		pods++
		note(i.Ordinal >= *s.Object.Spec.Replicas, "%s is too many", i.Name)
		note(i.Pod.DeletionTimestamp != nil || i.Pod.Status.Conditions[0].Status != corev1.ConditionTrue, "%s is not ready", i.Name)
		note(i.Pod.Annotations[naming.AnnotationTemplateHash] != "h", "%s is of another template", i.Name)
		if i.Claim == nil {
			note(true, "%s has no volume", i.Name)
		} else {
			size := i.Claim.Status.Capacity[corev1.ResourceStorage]
			note(i.Claim.DeletionTimestamp != nil, "%s loses its volume", i.Name)
			note(size.Cmp(resource.MustParse(s.Object.Spec.Storage)) < 0, "%s has a volume of %s", i.Name, size.String())
		}
		if i.Report == nil {
			note(true, "%s is silent", i.Name)
			continue
		}
		if i.Report.Role == contract.RolePrimary {
			primaries[i.Report.Term]++
			highest = max(highest, i.Report.Term)
		}
		note(i.Report.State != contract.StateRunning, "%s is %s", i.Name, i.Report.State)
		note(i.Report.SystemID != plan.SystemID, "%s has other data", i.Name)
		note(i.Report.DataVersion != s.Object.Spec.Version, "%s has version %s", i.Name, i.Report.DataVersion)
		note(i.Report.SettingsHash != plan.SettingsHash || i.Report.SettingsError != "" || len(i.Report.PendingRestart) > 0,
			"%s has other settings", i.Name)
		note(i.Report.LeaseMissing, "%s has no Lease", i.Name)
	}
	note(pods != *s.Object.Spec.Replicas, "there are %d instances", pods)
	note(primaries[highest] != 1 || len(primaries) != 1, "the primaries by term are %v", primaries)
	return wrong
}

// checkTimes: a condition's time is that of the last change of its status, and of nothing else.
func checkTimes(t *testing.T, before, after []metav1.Condition, at time.Time) {
	t.Helper()
	for _, c := range after {
		want := metav1.NewTime(at)
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			want = old.LastTransitionTime
		}
		if !c.LastTransitionTime.Equal(&want) {
			t.Errorf("%s changed at %s, want %s", c.Type, c.LastTransitionTime, want)
		}
	}
}

// checkStable: what the same facts say does not depend on having been said.
func checkStable(t *testing.T, s *snapshot.Cluster, result *outcome.Result, first v1alpha1.PostgresClusterStatus) {
	t.Helper()
	s.Object.Status = first
	second, told := status.Compute(s, next(s), result, now.Add(5*time.Second))
	if !slices.Equal(first.Conditions, second.Conditions) || len(told) > 0 {
		t.Errorf("said again, it is another status: %s, and told %v", worded(second.Conditions), told)
	}
}

func worded(conditions []metav1.Condition) string {
	var words []string
	for _, c := range conditions {
		words = append(words, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(words, "; ")
}

// declaredReasons are the values of the constants of the API.
var declaredReasons = sync.OnceValue(func() []string {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "apis", "v1alpha1", "conditions.go"), nil, 0)
	if err != nil {
		panic(err)
	}
	var reasons []string
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			value, _ := spec.Values[0].(*ast.BasicLit)
			text, err := strconv.Unquote(value.Value)
			if err != nil {
				panic(err)
			}
			reasons = append(reasons, text)
		}
		return true
	})
	return reasons
})
