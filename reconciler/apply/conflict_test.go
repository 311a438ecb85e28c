package apply_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/outcome"
)

// TestAFightIsLookedAtSeldom: a contested child costs no call while nothing changes, few while it does, and its end
// shows soon.
func TestAFightIsLookedAtSeldom(t *testing.T) {
	b := newBed()
	b.server.refuse = func(*unstructuredObject) error { return conflict("other", ".data.key") }
	for round := range 3 {
		b.apply(t, "1", live("uid-1", 100+round))
	}
	contested := func(version int, wait time.Duration, applies int) {
		t.Helper()
		result := b.apply(t, "1", live("uid-1", version))
		if len(result.Failures) != 1 || result.Failures[0].Class != outcome.ClassContested ||
			result.Failures[0].RetryAfter != wait || b.server.applies != applies || len(result.Failures[0].Conflicts) != 1 {
			t.Fatalf("after %d applies: %+v, want to wait %s after %d", b.server.applies, result.Failures, wait, applies)
		}
	}
	contested(103, 10*time.Minute, 7)
	contested(103, 10*time.Minute, 7) // Nothing has changed.
	b.now = b.now.Add(2 * time.Second)
	contested(104, 3*time.Second, 7) // It has, but it was only just looked at.
	b.now = b.now.Add(3 * time.Second)
	contested(104, 10*time.Minute-5*time.Second, 8)
	b.server.refuse = nil
	b.now = b.now.Add(5 * time.Second)
	if result := b.apply(t, "1", live("uid-1", 105)); len(result.Failures)+len(result.TakenBack) != 0 || b.server.applies != 9 {
		t.Errorf("the end of the fight does not show: %+v", result)
	}
}

// TestYieldedFieldsAreRemembered by passes that send nothing.
func TestYieldedFieldsAreRemembered(t *testing.T) {
	b := newBed()
	claimed := func(object *unstructuredObject) bool {
		_, ok := (*object)["metadata"].(map[string]any)["labels"].(map[string]any)["suggested"]
		return ok
	}
	b.server.refuse = func(object *unstructuredObject) error {
		if claimed(object) {
			return conflict("other", ".metadata.labels.suggested")
		}
		return nil
	}
	for range 2 {
		result := b.apply(t, "1", live("uid-1", 5))
		if len(result.Yielded) != 1 || result.Yielded[0].Conflicts[0].Manager != "other" || b.server.applies != 2 {
			t.Fatalf("yielded %v after %d applies", result.Yielded, b.server.applies)
		}
	}
	b.server.refuse = nil
	if result := b.apply(t, "1", live("uid-1", 20)); len(result.Yielded) != 0 {
		t.Errorf("the other manager has let go, and still yielded: %v", result.Yielded)
	}
}

func TestConflictsNameTheSubresource(t *testing.T) {
	err := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas",
			Message: `conflict with "kubectl" with subresource "scale" using apps/v1`,
		}}},
	}}
	want := outcome.Conflict{Manager: "kubectl", Subresource: "scale", Path: ".spec.replicas"}
	if got := apply.Conflicts(err); len(got) != 1 || got[0] != want {
		t.Errorf("conflicts %v, want %v", got, want)
	}
}

// TestTextsAreStable: what differs from one try to the next would make every try a new status.
func TestTextsAreStable(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"nobody answered": {errors.New("read tcp 10.0.0.1:53211->10.0.0.2:443: connection reset"), ""},
		"the server's text": {
			apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: provided range is full")),
			"Internal error occurred: failed to allocate a serviceIP: provided range is full",
		},
		"the server's text about a connection of its own": {
			apierrors.NewInternalError(errors.New(`failed calling webhook "x": read tcp 10.0.0.1:53211->10.0.0.2:443: reset`)),
			`Internal error occurred: failed calling webhook "x": read tcp 10.0.0.2:443: reset`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			b.server.refuse = func(*unstructuredObject) error { return test.err }
			result := b.apply(t, "1", live("uid-1", 5))
			if f := result.Failures[0]; f.Class != outcome.ClassTransient || f.Message != test.want || f.Err == nil {
				t.Errorf("%s: %q, want %q", f.Class, f.Message, test.want)
			}
		})
	}
}

// TestEveryApplyIsBuiltAnew: an apply fills the server's answer into what it was given. Sent once more, that would claim
// every default and name an old resourceVersion.
func TestEveryApplyIsBuiltAnew(t *testing.T) {
	b := newBed()
	var sent []string
	b.server.refuse = func(object *unstructuredObject) error {
		data, err := json.Marshal(*object)
		sent = append(sent, string(data))
		// What the server fills in.
		(*object)["data"].(map[string]any)["default"] = "filled in"
		(*object)["metadata"].(map[string]any)["labels"].(map[string]any)["default"] = "filled in"
		if len(sent) == 1 {
			return conflict("other", ".metadata.labels.suggested")
		}
		return err
	}
	b.apply(t, "1", live("uid-1", 5))
	b.apply(t, "1", live("uid-1", 50))
	if len(sent) != 3 {
		t.Fatalf("%d applies", len(sent))
	}
	for i, body := range sent {
		if strings.Contains(body, "filled in") || strings.Contains(body, "resourceVersion") {
			t.Errorf("apply %d repeats the server's answer: %s", i, body)
		}
	}
}

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestMigration(t *testing.T) {
	const (
		tie  = `{"f:data":{"f:old":{}},"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"owner\"}":{}}}}`
		data = `{"f:data":{"f:old":{}}}`
	)
	controller := []metav1.OwnerReference{{Kind: "PostgresCluster", Name: "db", UID: "owner", Controller: new(true)}}
	ours := entry("pg-operator", metav1.ManagedFieldsOperationApply, `{"f:data":{"f:key":{}}}`)
	tests := map[string]struct {
		owners  []metav1.OwnerReference
		entries []metav1.ManagedFieldsEntry
		race    int
		// want are the managers that are taken over.
		want []string
	}{
		"who wrote the owner reference":       {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Update", tie)}, want: []string{"manager"}},
		"before there is an entry of ours":    {owners: controller, entries: []metav1.ManagedFieldsEntry{entry("manager", "Update", tie)}, want: []string{"manager"}},
		"another program of a common name":    {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Update", data)}},
		"another name":                        {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("kubectl-edit", "Update", tie)}},
		"an apply under a common name":        {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Apply", tie)}},
		"our name of old":                     {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("old-operator", "Update", data)}, want: []string{"old-operator"}},
		"our name of old, that applied":       {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("old-operator", "Apply", data)}, want: []string{"old-operator"}},
		"our name of old, both ways":          {owners: controller, entries: []metav1.ManagedFieldsEntry{entry("old-operator", "Apply", tie), entry("old-operator", "Update", data)}, want: []string{"old-operator"}},
		"our own name, that updated":          {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("pg-operator", "Update", data)}, want: []string{"pg-operator"}},
		"by labels, where there is no owner":  {entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Update", `{"f:metadata":{"f:labels":{"f:ours":{}}},"f:data":{"f:old":{}}}`)}, want: []string{"manager"}},
		"others write at the same time":       {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Update", tie)}, race: 2, want: []string{"manager"}},
		"others write all the time":           {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Update", tie)}, race: 100},
		"unknown writers, of a usual kind":    {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("before-first-apply", "Update", tie)}, want: []string{"before-first-apply"}},
		"nobody":                              {owners: controller, entries: []metav1.ManagedFieldsEntry{ours}},
		"fields that cannot be read are left": {owners: controller, entries: []metav1.ManagedFieldsEntry{ours, entry("manager", "Update", `nonsense`)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			b.server.race, b.server.answered = test.race, true
			b.server.exists = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				UID: "uid-1", ResourceVersion: "5", OwnerReferences: test.owners, ManagedFields: test.entries,
			}}
			result := b.apply(t, "1", live("uid-1", 5))
			var got []string
			for _, m := range result.Migrated {
				got = append(got, m.Managers...)
			}
			if !slices.Equal(got, test.want) || len(result.Failures) != 0 {
				t.Fatalf("took over %v, want %v; failures %v", got, test.want, result.Failures)
			}
			if len(test.want) == 0 {
				return
			}
			left := b.server.exists.ManagedFields
			if len(left) != 1 || left[0].Manager != "pg-operator" || left[0].Operation != metav1.ManagedFieldsOperationApply ||
				!strings.Contains(string(left[0].FieldsV1.GetRawBytes()), "f:old") {
				t.Errorf("left are %v", left)
			}
			if b.server.applies != 2 {
				t.Errorf("%d applies: the second drops what is no longer wanted", b.server.applies)
			}
		})
	}
}

// TestAConflictWithAFormerManagerIsNoFight.
func TestAConflictWithAFormerManagerIsNoFight(t *testing.T) {
	b := newBed()
	b.server.exists = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: "uid-1", ResourceVersion: "5",
		ManagedFields: []metav1.ManagedFieldsEntry{entry("old-operator", "Apply", `{"f:data":{"f:key":{}}}`)},
	}}
	b.server.refuse = func(*unstructuredObject) error {
		if b.server.patches == 0 {
			return conflict("old-operator", ".data.key")
		}
		return nil
	}
	result := b.apply(t, "1", live(types.UID("uid-1"), 5))
	if len(result.TakenBack)+len(result.Failures) != 0 || len(result.Migrated) != 1 || b.server.forced != 0 {
		t.Errorf("%+v", result)
	}
}

// TestANameOfOldThatGoesOnWritingIsAFight: an older operator that still runs, or somebody who uses its name.
func TestANameOfOldThatGoesOnWritingIsAFight(t *testing.T) {
	for name, fields := range map[string]string{
		"old-operator": `{"f:data":{"f:key":{}}}`, "before-first-apply": `{"f:data":{"f:key":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			round := func(version int) outcome.Result {
				b.server.exists = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
					UID: "uid-1", ResourceVersion: "5", ManagedFields: []metav1.ManagedFieldsEntry{entry(name, "Update", fields)},
				}}
				patches := b.server.patches
				b.server.refuse = func(*unstructuredObject) error {
					if b.server.patches == patches {
						return conflict(name, ".data.key")
					}
					return nil
				}
				return b.apply(t, "1", live("uid-1", version))
			}
			for i := range 3 {
				if result := round(100 + i); len(result.Failures) != 0 {
					t.Fatalf("round %d: %+v", i, result.Failures)
				}
			}
			result := round(103)
			if len(result.Failures) != 1 || result.Failures[0].Class != outcome.ClassContested ||
				result.Failures[0].Conflicts[0].Manager != name {
				t.Errorf("the fourth round: %+v", result)
			}
		})
	}
}

// TestConflictsNameTheManager, whatever characters its name has.
func TestConflictsNameTheManager(t *testing.T) {
	for _, name := range []string{`x"y`, `x\y`, `a" with subresource "status`, "ключ", "-"} {
		got := apply.Conflicts(conflict(name, ".data.key"))
		if len(got) != 1 || got[0].Manager != name || got[0].Subresource != "" {
			t.Errorf("%q is told of as %+v", name, got)
		}
	}
}
