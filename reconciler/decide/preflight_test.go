package decide_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// running makes the pods and the StatefulSet of one template.
func running(s *snapshot.Cluster) {
	s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
	for i := range s.Instances {
		s.Instances[i].Pod.Name = s.Instances[i].Name
		s.Instances[i].Pod.UID = "pod"
		s.Instances[i].Pod.Annotations = map[string]string{naming.AnnotationTemplateHash: "old"}
	}
}

func TestPreflight(t *testing.T) {
	four := int32(4)
	tests := map[string]struct {
		observed func(*snapshot.Cluster)
		// wanted is the hash of the rendered template; "old" when empty.
		wanted   string
		first    bool
		pods     int32
		ordinal  int32
		replaced string
		claims   int
		grown    int
	}{
		"at rest": {observed: running},
		"nothing yet": {observed: func(s *snapshot.Cluster) {
			s.StatefulSet, s.Instances = nil, nil
		}, first: true, pods: 2, claims: 2},
		"nothing but volumes of an earlier cluster": {observed: func(s *snapshot.Cluster) {
			s.StatefulSet, s.Instances[0].Pod, s.Instances[1].Pod = nil, nil, nil
		}, first: true, pods: 2},
		"the StatefulSet is being made anew": {observed: func(s *snapshot.Cluster) {
			running(s)
			s.StatefulSet = nil
		}, wanted: "new"},
		"more instances": {observed: func(s *snapshot.Cluster) {
			running(s)
			s.Object.Spec.Replicas = &four
		}, pods: 2, ordinal: 2, claims: 2},
		"larger volumes": {observed: func(s *snapshot.Cluster) {
			running(s)
			s.Object.Spec.Storage = "30Gi"
		}, grown: 2},
		"another template": {observed: running, wanted: "new", ordinal: 1, replaced: "db-1"},
		"another template, and no pod runs": {observed: func(s *snapshot.Cluster) {
			running(s)
			s.Instances[0].Pod, s.Instances[1].Pod = nil, nil
		}, wanted: "new"},
		"a pod is missing that was asked for": {observed: func(s *snapshot.Cluster) {
			running(s)
			s.Instances[1].Pod = nil
		}},
		"a pod is on its way out": {observed: func(s *snapshot.Cluster) {
			running(s)
			s.Instances[1].Pod.DeletionTimestamp = &metav1.Time{}
			s.Instances[1].Pod.DeletionTimestamp.Time = time.Unix(1, 0)
		}, wanted: "new", replaced: "db-0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := observed(test.observed)
			plan := decide.Next(s, decide.Config{}, time.Unix(0, 0))
			if test.wanted == "" {
				test.wanted = "old"
			}
			f := plan.Preflight(s, test.wanted)
			replaced := ""
			if f.Replaced != nil {
				replaced = f.Replaced.Name
			}
			if f.First != test.first || f.Pods != test.pods || replaced != test.replaced ||
				(f.Pods > 0 || replaced != "") && f.Ordinal != test.ordinal || len(f.Claims) != test.claims || len(f.Grown) != test.grown {
				t.Errorf("got %+v (replaces %q)", f, replaced)
			}
			if f.Needed() != (test.pods > 0 || test.replaced != "" || test.claims+test.grown > 0) {
				t.Errorf("needed: %v", f.Needed())
			}
			for _, claim := range plan.Held(s).Claims {
				instance, _ := s.Instance(claim.Ordinal)
				if requested, known := instance.Requested(); !known || claim.Size.Cmp(requested) != 0 {
					t.Errorf("a plan that is held makes or grows the volume of %d", claim.Ordinal)
				}
			}
		})
	}
}

// TestPreflightBeforeEachRestart: also when the StatefulSet has the new template already.
func TestPreflightBeforeEachRestart(t *testing.T) {
	s := observed(running)
	plan := decide.Plan{Replicas: 2, Restart: &decide.Restart{Instance: "db-1", UID: "pod"}}
	if f := plan.Preflight(s, "old"); f.Replaced == nil || f.Ordinal != 1 {
		t.Errorf("got %+v", f)
	}
	if held := plan.Held(s); held.Restart != nil {
		t.Error("a plan that is held restarts a pod")
	}
}
