// Package outcome is what became of one pass over a cluster's children: the
// words that package apply, which finds it out, and package status, which tells
// of it, have in common.
package outcome

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Outcome is what became of one child.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
	Skipped   Outcome = "skipped"
	Deleted   Outcome = "deleted"
	Failed    Outcome = "failed"
)

// Result is what became of one pass.
type Result struct {
	// Outcomes of the children that were reached, in order.
	Outcomes []ChildOutcome
	// Failures of children; others were applied all the same.
	Failures []Failure
	// TakenBack are the fields that were taken back from other managers; Untold those of earlier passes of which the
	// status does not tell yet.
	TakenBack, Untold []Disputed
	// Yielded are the fields that are left to other managers, of all children that were reached and did not fail.
	Yielded []Disputed
	// Migrated are the children whose fields were taken over from field managers of earlier times.
	Migrated []Migrated
	// Gone says that the owner no longer exists, so that nothing was created.
	Gone bool
	// Calls is the number of writes sent to the API server.
	Calls int
}

// Key names a child in its owner's namespace.
type Key struct {
	schema.GroupKind
	Name string
}

// NewKey names a child of a kind; group is empty for Kubernetes' core.
func NewKey(group, kind, name string) Key {
	return Key{GroupKind: schema.GroupKind{Group: group, Kind: kind}, Name: name}
}

// ChildOutcome is the outcome of one child.
type ChildOutcome struct {
	Key
	Outcome Outcome
}

// Failure is a child that could not be applied.
type Failure struct {
	Key
	Class Class
	// Message is stable text: no times, no counters of ours.
	Message string
	// Err is nil when no call failed.
	Err error
	// Conflicts are the fields that are fought over, when Class is ClassContested.
	Conflicts []Conflict
	// RetryAfter is set when the class's own delay is not right.
	RetryAfter time.Duration
}

// Disputed are fields of one child that other managers set.
type Disputed struct {
	Key
	Conflicts []Conflict
}

// Migrated is a child of which earlier field managers of the operator owned fields.
type Migrated struct {
	Key
	// Managers are their names, sorted.
	Managers []string
}

// Blocked says that what depends on earlier children must wait. A fight over a field of an existing child does not
// block: the child is there.
func (r *Result) Blocked() bool {
	for i := range r.Failures {
		if r.Failures[i].Class != ClassContested {
			return true
		}
	}
	return false
}

// Quiet says that the pass found everything as it shall be.
func (r *Result) Quiet() bool {
	for _, child := range r.Outcomes {
		if child.Outcome != Skipped && child.Outcome != Unchanged {
			return false
		}
	}
	return len(r.Failures) == 0 && !r.Gone
}

// Add records the outcome of one child.
func (r *Result) Add(key Key, outcome Outcome) {
	r.Outcomes = append(r.Outcomes, ChildOutcome{key, outcome})
}

// Fail records a child that could not be applied.
func (r *Result) Fail(key Key, failure Failure) {
	failure.Key = key
	r.Failures = append(r.Failures, failure)
	r.Add(key, Failed)
}
