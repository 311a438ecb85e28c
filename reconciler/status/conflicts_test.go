package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/status"
)

func service(name string) outcome.Key {
	return outcome.Key{GroupKind: schema.GroupKind{Kind: "Service"}, Name: name}
}

func disputed(name string, conflicts ...outcome.Conflict) []outcome.Disputed {
	return []outcome.Disputed{{Key: service(name), Conflicts: conflicts}}
}

// reached is the result of a pass that reached the Service db.
func reached(change func(*outcome.Result)) outcome.Result {
	result := outcome.Result{}
	result.Add(service("db"), outcome.Unchanged)
	if change != nil {
		change(&result)
	}
	return result
}

func contested(conflicts ...outcome.Conflict) outcome.Result {
	result := outcome.Result{}
	result.Fail(service("db"), outcome.Failure{Class: outcome.ClassContested, Message: "x", Conflicts: conflicts})
	return result
}

// round is one pass after another; each starts from the status that the one before stored.
type round struct {
	after  time.Duration
	result outcome.Result
	// want is the list as "path resolution minutes", where minutes are those of its time since the first round.
	want   string
	events string
}

func TestConflictsComeAndGo(t *testing.T) {
	selector := outcome.Conflict{Manager: "helm", Path: ".spec.selector"}
	label := outcome.Conflict{Manager: "argocd", Path: ".metadata.labels.a"}
	taken := reached(func(r *outcome.Result) { r.TakenBack = disputed("db", selector) })
	untold := reached(func(r *outcome.Result) { r.Untold = disputed("db", selector) })
	yielded := reached(func(r *outcome.Result) { r.Yielded = disputed("db", label) })
	failed := failed(outcome.ClassTransient, "Service", "", "")
	deleted := outcome.Result{}
	deleted.Add(service("db"), outcome.Deleted)
	tests := map[string][]round{
		"taken back, told of for an hour": {
			{0, taken, ".spec.selector TakenBack 0", "FieldTakenBack"},
			{10 * time.Minute, reached(nil), ".spec.selector TakenBack 0", ""},
			{49 * time.Minute, reached(nil), ".spec.selector TakenBack 0", ""},
			{time.Minute, reached(nil), "", ""},
		},
		"taken back again": {
			{0, taken, ".spec.selector TakenBack 0", "FieldTakenBack"},
			{30 * time.Minute, taken, ".spec.selector TakenBack 30", "FieldTakenBack"},
		},
		"taken back in a pass whose status was not stored": {
			{0, untold, ".spec.selector TakenBack 0", ""},
		},
		"yielded as long as it is": {
			{0, yielded, ".metadata.labels.a Yielded 0", "FieldYielded"},
			{5 * time.Hour, yielded, ".metadata.labels.a Yielded 0", ""},
			{time.Hour, failed, ".metadata.labels.a Yielded 0", ""},
			{time.Hour, reached(nil), "", ""},
		},
		"contested until it ends, then over like any other": {
			{0, taken, ".spec.selector TakenBack 0", "FieldTakenBack"},
			{time.Minute, contested(selector), ".spec.selector Contested 1", "FieldContested"},
			{5 * time.Minute, contested(selector), ".spec.selector Contested 1", ""},
			{time.Minute, failed, ".spec.selector Contested 1", ""},
			{time.Minute, reached(nil), ".spec.selector TakenBack 1", ""},
			{53 * time.Minute, reached(nil), "", ""},
		},
		"one of two contested fields is let go": {
			{0, contested(selector, label), ".metadata.labels.a Contested 0, .spec.selector Contested 0", "FieldContested FieldContested"},
			{time.Minute, contested(selector), ".metadata.labels.a TakenBack 0, .spec.selector Contested 0", ""},
		},
		"the object is gone": {
			{0, yielded, ".metadata.labels.a Yielded 0", "FieldYielded"},
			{time.Minute, deleted, "", ""},
		},
	}
	for name, rounds := range tests {
		t.Run(name, func(t *testing.T) {
			s, at := healthy(), now
			for i, round := range rounds {
				at = at.Add(round.after)
				got, told := status.Compute(s, decide.Next(s, config, at), &round.result, at)
				var list, reasons []string
				for _, c := range got.Conflicts {
					list = append(list, fmt.Sprintf("%s %s %.0f", c.FieldPath, c.Resolution, c.Time.Sub(now).Minutes()))
				}
				for _, event := range told {
					if strings.HasPrefix(event.Reason, "Field") {
						reasons = append(reasons, event.Reason)
					}
				}
				if strings.Join(list, ", ") != round.want || strings.Join(reasons, " ") != round.events {
					t.Errorf("round %d: %v and events %v, want %s and %s", i, list, reasons, round.want, round.events)
				}
				s.Object.Status = got
			}
		})
	}
}

// TestManyConflictsAreBounded: what goes on is kept before what is over, the newest of that, and nothing changes at rest.
func TestManyConflictsAreBounded(t *testing.T) {
	s, at := healthy(), now
	pass := func(result outcome.Result) v1alpha1.PostgresClusterStatus {
		at = at.Add(time.Second)
		got, _ := status.Compute(s, decide.Next(s, config, at), &result, at)
		s.Object.Status = got
		return got
	}
	labels := make([]outcome.Conflict, 20)
	for i := range labels {
		labels[i] = outcome.Conflict{Manager: "argocd", Path: fmt.Sprintf(".metadata.labels.l%02d", i)}
	}
	yielded := func(r *outcome.Result) { r.Yielded = disputed("db", labels...) }
	pass(reached(yielded))
	for i := range 12 {
		pass(reached(func(r *outcome.Result) {
			yielded(r)
			r.TakenBack = disputed("db", outcome.Conflict{Manager: "helm", Path: fmt.Sprintf(".spec.p%02d", i)})
		}))
	}
	first := pass(reached(yielded))
	second := pass(reached(yielded))
	if len(first.Conflicts) != 16 || !equality.Semantic.DeepEqual(first, second) {
		t.Errorf("%d conflicts; at rest they change from\n%v\nto\n%v", len(first.Conflicts), first.Conflicts, second.Conflicts)
	}
	for i := range 20 {
		pass(reached(func(r *outcome.Result) {
			r.TakenBack = disputed("db", outcome.Conflict{Manager: "helm", Path: fmt.Sprintf(".spec.q%02d", i)})
		}))
	}
	got := s.Object.Status.Conflicts
	if len(got) != 16 || got[0].FieldPath != ".spec.q04" || got[15].FieldPath != ".spec.q19" {
		t.Errorf("the newest are not kept: %v", got)
	}
}

func TestLongConflictsAreCut(t *testing.T) {
	s := healthy()
	long := strings.Repeat("ä", 600)
	result := reached(func(r *outcome.Result) {
		r.TakenBack = disputed("db", outcome.Conflict{Manager: long, Path: long + "1"}, outcome.Conflict{Manager: long, Path: long + "2"})
	})
	got, told := status.Compute(s, decide.Next(s, config, now), &result, now)
	if len(got.Conflicts) != 2 {
		t.Fatalf("two paths have become %d", len(got.Conflicts))
	}
	for _, c := range got.Conflicts {
		if path, manager := len([]rune(c.FieldPath)), len([]rune(c.Manager)); path != 512 || manager != 128 {
			t.Errorf("path of %d and manager of %d characters", path, manager)
		}
	}
	if length := len([]rune(told[len(told)-1].Message)); length > 1024 {
		t.Errorf("an event of %d characters", length)
	}
}

func TestExpiryOfConflicts(t *testing.T) {
	s := healthy()
	result := reached(func(r *outcome.Result) {
		r.TakenBack = disputed("db", outcome.Conflict{Manager: "helm", Path: ".spec.selector"})
	})
	got, _ := status.Compute(s, decide.Next(s, config, now), &result, now)
	if wait := status.NextExpiry(&got, now.Add(10*time.Minute)); wait != 50*time.Minute {
		t.Errorf("looks again after %s", wait)
	}
	if wait := status.NextExpiry(&v1alpha1.PostgresClusterStatus{}, now); wait != 0 {
		t.Errorf("without conflicts: looks again after %s", wait)
	}
}

// TestScalingTheStatefulSetIsAnswered with what to scale instead.
func TestScalingTheStatefulSetIsAnswered(t *testing.T) {
	s := healthy()
	result := outcome.Result{TakenBack: []outcome.Disputed{{
		Key:       outcome.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, Name: "db"},
		Conflicts: []outcome.Conflict{{Manager: "kube-controller-manager", Subresource: "scale", Path: ".spec.replicas"}},
	}}}
	_, told := status.Compute(s, decide.Next(s, config, now), &result, now)
	message := told[len(told)-1].Message
	for _, word := range []string{"kube-controller-manager", "subresource scale", ".spec.replicas", "kubectl scale pgc/db", "scaleTargetRef"} {
		if !strings.Contains(message, word) {
			t.Errorf("the event does not say %q: %s", word, message)
		}
	}
}
