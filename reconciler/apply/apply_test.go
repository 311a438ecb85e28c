package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/outcome"
)

// server answers applies as scripted; real answers are provoked in test/ssa.
type server struct {
	version int
	applies int
	forced  int
	creates int
	gets    int
	// refuse is asked before each apply.
	refuse func(object *unstructuredObject) error
	exists *metav1.PartialObjectMetadata
	// answered are the managed fields in the answer to an apply, instead of none.
	answered bool
	patches  int
	// race is how many patches come too late.
	race int
}

type unstructuredObject = map[string]any

func (s *server) Apply(_ context.Context, configuration runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	s.applies++
	applied := &client.ApplyOptions{}
	applied.ApplyOptions(options)
	forced := applied.Force != nil && *applied.Force
	if forced {
		s.forced++
	}
	object := configuration.(interface {
		metav1.Object
		UnstructuredContent() map[string]any
	})
	if s.refuse != nil && !forced {
		content := object.UnstructuredContent()
		if err := s.refuse(&content); err != nil {
			return err
		}
	}
	s.version++
	object.SetUID("uid-1")
	object.SetResourceVersion(strconv.Itoa(s.version))
	if s.answered {
		s.exists.ResourceVersion = object.GetResourceVersion()
		object.SetManagedFields(s.exists.ManagedFields)
		object.SetOwnerReferences(s.exists.OwnerReferences)
	}
	return nil
}

func (s *server) Create(context.Context, client.Object, ...client.CreateOption) error {
	s.creates++
	if s.exists != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, "x")
	}
	return nil
}

func (s *server) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }

// Patch stores the managed fields of a patch.
func (s *server) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	s.patches++
	if s.race > 0 {
		s.race--
		s.exists.ResourceVersion += "0"
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, object.GetName(),
			errors.New("the object has been modified"))
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var operations []struct{ Value json.RawMessage }
	if err := json.Unmarshal(data, &operations); err != nil {
		return err
	}
	if version := string(operations[1].Value); version != strconv.Quote(s.exists.ResourceVersion) {
		return fmt.Errorf("the patch is of version %s, not %s", version, s.exists.ResourceVersion)
	}
	s.exists.ManagedFields = nil
	return json.Unmarshal(operations[0].Value, &s.exists.ManagedFields)
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.gets++
	if s.exists == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "x")
	}
	s.exists.DeepCopyInto(object.(*metav1.PartialObjectMetadata))
	return nil
}

func conflict(manager, path string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldManagerConflict, Field: path, Message: fmt.Sprintf("conflict with %q using v1", manager),
		}}},
	}}
}

var former = apply.Former{Names: []string{"old-operator"}, Writers: []string{"manager", "before-first-apply"}}

type bed struct {
	server  *server
	applier *apply.Applier
	now     time.Time
	alive   bool
	// fresh owners have no children yet.
	fresh bool
}

func newBed() *bed {
	b := &bed{server: &server{version: 10}, now: time.Unix(1000, 0), alive: true}
	yields := func(path string) bool { return strings.HasPrefix(path, ".metadata.labels.") }
	b.applier = apply.New(b.server, b.server, "pg-operator", former, yields, func() time.Time { return b.now })
	return b
}

func (b *bed) pass() *apply.Pass {
	return b.applier.Begin(apply.Owner{
		Namespace: "ns", Name: "db", UID: "owner", Kind: schema.GroupKind{Group: "db.example.com", Kind: "PostgresCluster"},
		Labels:  map[string]string{"ours": "yes"},
		New:     b.fresh,
		Confirm: func(context.Context) (bool, error) { return b.alive, nil },
	})
}

func (b *bed) apply(t *testing.T, value string, live metav1.Object) outcome.Result {
	t.Helper()
	p := b.pass()
	p.All(t.Context(), []apply.Intent{{
		Object: corev1ac.ConfigMap("x", "ns").WithLabels(map[string]string{"suggested": "a"}).WithData(map[string]string{"key": value}),
		Live:   live,
	}})
	return p.Result
}

func live(uid types.UID, version int) metav1.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: strconv.Itoa(version)}}
}

func (b *bed) expect(t *testing.T, result outcome.Result, want outcome.Outcome, applies int) {
	t.Helper()
	if len(result.Outcomes) != 1 || result.Outcomes[0].Outcome != want || b.server.applies != applies {
		t.Fatalf("%v after %d applies, want %s after %d", result.Outcomes, b.server.applies, want, applies)
	}
}

func TestNothingIsAppliedTwice(t *testing.T) {
	b := newBed()
	b.expect(t, b.apply(t, "1", nil), outcome.Created, 1)
	b.expect(t, b.apply(t, "1", nil), outcome.Skipped, 1)                 // The cache has not caught up.
	b.expect(t, b.apply(t, "1", live("uid-1", 11)), outcome.Skipped, 1)   // It has.
	b.expect(t, b.apply(t, "1", live("uid-1", 12)), outcome.Unchanged, 2) // Somebody wrote; the server found nothing to change.
	b.expect(t, b.apply(t, "2", live("uid-1", 12)), outcome.Changed, 3)   // Another intent.
}

func TestWhatIsGoneIsMadeAnew(t *testing.T) {
	b := newBed()
	b.expect(t, b.apply(t, "1", nil), outcome.Created, 1)
	b.expect(t, b.apply(t, "1", live("uid-1", 11)), outcome.Skipped, 1)
	b.expect(t, b.apply(t, "1", nil), outcome.Created, 2) // It was seen, and is gone.
	b.now = b.now.Add(apply.CacheLag)
	b.expect(t, b.apply(t, "1", nil), outcome.Created, 3) // It was never seen, for too long.
}

func TestNothingIsMadeForTheDead(t *testing.T) {
	b := newBed()
	b.alive = false
	if result := b.apply(t, "1", nil); !result.Gone || b.server.applies != 0 {
		t.Errorf("gone %v after %d applies", result.Gone, b.server.applies)
	}
}

func TestFightsEndAndAreForgotten(t *testing.T) {
	b := newBed()
	b.server.refuse = func(*unstructuredObject) error { return conflict("other", ".data.key") }
	for round := range 3 {
		result := b.apply(t, "1", live("uid-1", 100+round))
		if len(result.TakenBack) != 1 || result.TakenBack[0].Conflicts[0].Manager != "other" {
			t.Fatalf("round %d: %+v", round, result)
		}
		b.now = b.now.Add(time.Minute)
	}
	result := b.apply(t, "1", live("uid-1", 103))
	if len(result.Failures) != 1 || result.Failures[0].Class != outcome.ClassContested || b.server.forced != 3 {
		t.Fatalf("%d forced, failures %+v", b.server.forced, result.Failures)
	}
	if wait := result.Failures[0].RetryAfter; wait != 7*time.Minute {
		t.Errorf("retry after %s", wait)
	}
	if result.Blocked() {
		t.Error("a fight over one child blocks the others")
	}
	b.now = b.now.Add(8 * time.Minute)
	if result = b.apply(t, "1", live("uid-1", 104)); len(result.TakenBack) != 1 {
		t.Errorf("the fight is not forgotten: %+v", result)
	}
}

func TestYieldedFieldsAreLeftOut(t *testing.T) {
	b := newBed()
	b.server.refuse = func(object *unstructuredObject) error {
		if _, claimed := (*object)["metadata"].(map[string]any)["labels"].(map[string]any)["suggested"]; claimed {
			return conflict("other", ".metadata.labels.suggested")
		}
		return nil
	}
	b.expect(t, b.apply(t, "1", live("uid-1", 5)), outcome.Changed, 2)
	if b.server.forced != 0 {
		t.Error("a yielded field was forced")
	}
}

func TestWhoseObjectItIs(t *testing.T) {
	controller := func(uid types.UID, name string) []metav1.OwnerReference {
		isController := true
		return []metav1.OwnerReference{{Kind: "PostgresCluster", Name: name, UID: uid, Controller: &isController}}
	}
	tests := map[string]struct {
		meta metav1.ObjectMeta
		want outcome.Class
	}{
		"ours by controller":       {metav1.ObjectMeta{OwnerReferences: controller("owner", "db")}, ""},
		"ours by label":            {metav1.ObjectMeta{Labels: map[string]string{"ours": "yes"}}, ""},
		"ours by an earlier apply": {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "pg-operator", Operation: "Apply"}}}, ""},
		"nobody's":                 {metav1.ObjectMeta{}, outcome.ClassForeign},
		"another controller's":     {metav1.ObjectMeta{Labels: map[string]string{"ours": "yes"}, OwnerReferences: controller("x", "other")}, outcome.ClassForeign},
		"an earlier cluster's":     {metav1.ObjectMeta{OwnerReferences: controller("x", "db")}, outcome.ClassDeleting},
		"being deleted":            {metav1.ObjectMeta{Labels: map[string]string{"ours": "yes"}, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, outcome.ClassDeleting},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			b.server.exists = &metav1.PartialObjectMetadata{ObjectMeta: test.meta}
			b.server.exists.UID = "uid-1"
			b.server.refuse = func(object *unstructuredObject) error {
				if (*object)["metadata"].(map[string]any)["resourceVersion"] == "1" {
					return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "x",
						fmt.Errorf("the object has been modified"))
				}
				return nil
			}
			result := b.apply(t, "1", nil)
			var got outcome.Class
			if len(result.Failures) > 0 {
				got = result.Failures[0].Class
			}
			if got != test.want {
				t.Errorf("class %q, want %q: %+v", got, test.want, result.Failures)
			}
		})
	}
}

// TestEnsuredObjectsThatExist are never created, and are looked at anew each time: whose they are may change.
func TestEnsuredObjectsThatExist(t *testing.T) {
	b := newBed()
	b.server.exists = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "ours", Labels: map[string]string{"ours": "yes"}}}
	ensure := func() outcome.Result {
		b.now = b.now.Add(time.Minute)
		p := b.pass()
		p.Ensure(t.Context(), outcome.NewKey("", "Secret", "x"), time.Minute, func() client.Object {
			return &corev1.Secret{}
		})
		return p.Result
	}
	if result := ensure(); result.Outcomes[0].Outcome != outcome.Unchanged {
		t.Fatalf("ours: %+v", result)
	}
	b.server.exists = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "theirs"}}
	result := ensure()
	if len(result.Failures) != 1 || result.Failures[0].Class != outcome.ClassForeign ||
		!strings.Contains(result.Failures[0].Message, "the operator makes this Secret itself") {
		t.Errorf("somebody else's: %+v", result)
	}
	if b.server.creates != 0 {
		t.Errorf("%d creates over an object that exists", b.server.creates)
	}
	b.server.exists = nil
	if result := ensure(); result.Outcomes[0].Outcome != outcome.Created || b.server.creates != 1 {
		t.Errorf("nobody's: %+v", result)
	}
}

// TestEnsuredObjectsOfNewOwners are created without a look, and what exists against expectation is looked at.
func TestEnsuredObjectsOfNewOwners(t *testing.T) {
	tests := map[string]struct {
		exists  *metav1.PartialObjectMetadata
		dead    bool
		want    string
		creates int
		gets    int
	}{
		"nobody's": {want: string(outcome.Created), creates: 1},
		"ours": {
			exists: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "ours", Labels: map[string]string{"ours": "yes"}}},
			want:   string(outcome.Unchanged), creates: 1, gets: 1,
		},
		"somebody else's": {
			exists: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "theirs"}},
			want:   string(outcome.ClassForeign), creates: 1, gets: 1,
		},
		"of the dead": {dead: true, want: "gone"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			b.fresh, b.alive, b.server.exists = true, !test.dead, test.exists
			p := b.pass()
			p.Ensure(t.Context(), outcome.NewKey("", "Secret", "x"), time.Minute, func() client.Object {
				return &corev1.Secret{}
			})
			var got string
			switch {
			case p.Result.Gone:
				got = "gone"
			case len(p.Result.Failures) > 0:
				got = string(p.Result.Failures[0].Class)
			default:
				got = string(p.Result.Outcomes[0].Outcome)
			}
			if got != test.want || b.server.creates != test.creates || b.server.gets != test.gets {
				t.Errorf("%s after %d creates and %d looks, want %s after %d and %d", got, b.server.creates, b.server.gets,
					test.want, test.creates, test.gets)
			}
		})
	}
}

// TestNobodyWaitsForWhatIsNotWanted: a child that the cache never showed and that is not rendered any more.
func TestNobodyWaitsForWhatIsNotWanted(t *testing.T) {
	b := newBed()
	b.apply(t, "1", nil)
	p := b.pass()
	if !p.Pending() {
		t.Fatal("the cache has shown nothing, and nobody waits for it")
	}
	p.Keep(func(key outcome.Key) bool { return key.Name == "x" })
	if !p.Pending() {
		t.Error("a wanted child is forgotten")
	}
	p.Keep(func(outcome.Key) bool { return false })
	if p.Pending() {
		t.Error("somebody waits for a child that is not wanted")
	}
}

func TestEnsuredObjectsAreLookedForOnceInAWhile(t *testing.T) {
	b := newBed()
	ensure := func() outcome.Result {
		p := b.pass()
		p.Ensure(t.Context(), outcome.NewKey("", "Secret", "x"), time.Minute, func() client.Object {
			return &corev1.Secret{}
		})
		return p.Result
	}
	steps := []struct {
		pass time.Duration
		want outcome.Outcome
		made int
	}{{0, outcome.Created, 1}, {time.Second, outcome.Skipped, 1}, {time.Minute, outcome.Created, 2}}
	for _, step := range steps {
		b.now = b.now.Add(step.pass)
		if result := ensure(); result.Outcomes[0].Outcome != step.want || b.server.creates != step.made {
			t.Errorf("after %s: %v, %d creates", step.pass, result.Outcomes, b.server.creates)
		}
	}
}
