package status

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
)

const (
	// maxConflicts, maxFieldPath and maxManager are the schema's limits of status.conflicts[].
	maxConflicts, maxFieldPath, maxManager = 16, 512, 128
	// conflictLife is how long a field that was taken back is told of.
	conflictLife = time.Hour
)

// conflictKey is what the list is keyed by.
type conflictKey struct{ kind, name, path, manager string }

func keyOf(c *v1alpha1.FieldConflict) conflictKey {
	return conflictKey{c.Kind, c.Name, c.FieldPath, c.Manager}
}

func (k conflictKey) compare(other conflictKey) int {
	return cmp.Or(strings.Compare(k.kind, other.kind), strings.Compare(k.name, other.name),
		strings.Compare(k.path, other.path), strings.Compare(k.manager, other.manager))
}

// conflicts are the fields that other managers set, as of this pass: the stored ones that are still true, and the new
// ones. The time of one changes only when the field is taken back once more, so that a status at rest stays as it is.
func conflicts(
	stored []v1alpha1.FieldConflict, plan decide.Plan, result *outcome.Result, now time.Time,
) []v1alpha1.FieldConflict {
	before := make(map[conflictKey]v1alpha1.FieldConflict, len(stored))
	found := make(map[conflictKey]v1alpha1.FieldConflict, len(stored))
	fates := fatesOf(plan, result)
	for _, c := range stored {
		before[keyOf(&c)] = c
		switch fate := fates(c.Kind, c.Name); {
		case c.Resolution == v1alpha1.ConflictTakenBack, fate == unknownFate:
			// It stays as it is, the former for its time.
		case fate == gone, c.Resolution == v1alpha1.ConflictYielded && fate == settled:
			continue // If it is still yielded, it comes back below.
		case c.Resolution == v1alpha1.ConflictContested:
			c.Resolution = v1alpha1.ConflictTakenBack // The fight has ended; if not, it comes back below.
		}
		found[keyOf(&c)] = c
	}
	add := func(disputed outcome.Disputed, resolution v1alpha1.ConflictResolution) {
		for _, conflict := range disputed.Conflicts {
			c := v1alpha1.FieldConflict{
				Kind: disputed.Kind, Name: disputed.Name, Resolution: resolution,
				FieldPath: shorten(conflict.Path, maxFieldPath), Manager: shorten(conflict.Manager, maxManager),
				Time: &metav1.Time{Time: now.Truncate(time.Second)},
			}
			if same, ok := before[keyOf(&c)]; ok && same.Resolution == resolution && resolution != v1alpha1.ConflictTakenBack {
				c.Time = same.Time
			}
			found[keyOf(&c)] = c
		}
	}
	for _, yielded := range result.Yielded {
		add(yielded, v1alpha1.ConflictYielded)
	}
	for _, taken := range slices.Concat(result.Untold, result.TakenBack) {
		add(taken, v1alpha1.ConflictTakenBack)
	}
	for i := range result.Failures {
		if f := &result.Failures[i]; f.Class == outcome.ClassContested {
			add(outcome.Disputed{Key: f.Key, Conflicts: f.Conflicts}, v1alpha1.ConflictContested)
		}
	}
	return bounded(found, now)
}

// fate is what a pass learned of the conflicts of a child.
type fate int

const (
	// unknownFate: it was not reached, or failed for another reason.
	unknownFate fate = iota
	// settled: it is as it shall be, but for what the result says is yielded.
	settled
	// fought: the result has all of its contested fields, and none that are yielded.
	fought
	// gone: it is deleted.
	gone
)

type child struct{ kind, name string }

func fatesOf(plan decide.Plan, result *outcome.Result) func(kind, name string) fate {
	known := map[child]fate{}
	for _, c := range result.Outcomes {
		switch c.Outcome {
		case outcome.Failed:
			known[child{c.Kind, c.Name}] = unknownFate
		case outcome.Deleted:
			known[child{c.Kind, c.Name}] = gone
		default:
			known[child{c.Kind, c.Name}] = settled
		}
	}
	for i := range result.Failures {
		if f := &result.Failures[i]; f.Class == outcome.ClassContested {
			known[child{f.Kind, f.Name}] = fought
		}
	}
	complete := plan.Apply && len(result.Failures) == 0 && !result.Gone
	return func(kind, name string) fate {
		if fate, ok := known[child{kind, name}]; ok || !complete {
			return fate
		}
		return gone
	}
}

// bounded keeps what goes on before what is over, and the newest of that; the list is ordered by its keys.
func bounded(found map[conflictKey]v1alpha1.FieldConflict, now time.Time) []v1alpha1.FieldConflict {
	rank := map[v1alpha1.ConflictResolution]int{
		v1alpha1.ConflictContested: 0, v1alpha1.ConflictTakenBack: 1, v1alpha1.ConflictYielded: 2,
	}
	list := make([]v1alpha1.FieldConflict, 0, len(found))
	for _, c := range found {
		if c.Resolution != v1alpha1.ConflictTakenBack || c.Time != nil && now.Sub(c.Time.Time) < conflictLife {
			list = append(list, c)
		}
	}
	byKey := func(a, b v1alpha1.FieldConflict) int { return keyOf(&a).compare(keyOf(&b)) }
	slices.SortFunc(list, func(a, b v1alpha1.FieldConflict) int {
		newest := 0
		if a.Resolution == v1alpha1.ConflictTakenBack && b.Resolution == a.Resolution && a.Time != nil && b.Time != nil {
			newest = b.Time.Compare(a.Time.Time)
		}
		return cmp.Or(rank[a.Resolution]-rank[b.Resolution], newest, byKey(a, b))
	})
	if len(list) > maxConflicts {
		list = list[:maxConflicts]
	}
	slices.SortFunc(list, byKey)
	if len(list) == 0 {
		return nil
	}
	return list
}

// NextExpiry is how long until the first conflict that is over is no longer told of; zero when there is none.
func NextExpiry(status *v1alpha1.PostgresClusterStatus, now time.Time) time.Duration {
	next := time.Duration(0)
	for i := range status.Conflicts {
		if c := &status.Conflicts[i]; c.Resolution == v1alpha1.ConflictTakenBack && c.Time != nil {
			left := max(conflictLife-now.Sub(c.Time.Time), time.Second)
			if next == 0 || left < next {
				next = left
			}
		}
	}
	return next
}

// shorten cuts a text that is longer than the schema allows; its end is a hash of all of it, to tell two such texts apart.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text))
	end := fmt.Sprintf("…%08x", hash.Sum32())
	return string(runes[:most-len([]rune(end))]) + end
}

// conflictEvents tell of fields that were taken back, each time, and of those newly yielded or contested.
func conflictEvents(
	cluster string, stored, conflicts []v1alpha1.FieldConflict, result *outcome.Result,
) []Event {
	var events []Event
	for _, taken := range result.TakenBack {
		events = append(events, Event{
			Type: corev1.EventTypeWarning, Reason: "FieldTakenBack", Action: "Apply",
			Message: fmt.Sprintf("%s %s was changed by another field manager and was set back: %s; %s",
				taken.Kind, taken.Name, outcome.Describe(taken.Conflicts), instead(cluster, taken)),
		})
	}
	for i := range conflicts {
		c := &conflicts[i]
		same := func(other v1alpha1.FieldConflict) bool {
			return keyOf(&other) == keyOf(c) && other.Resolution == c.Resolution
		}
		if slices.ContainsFunc(stored, same) {
			continue
		}
		switch c.Resolution {
		case v1alpha1.ConflictYielded:
			events = append(events, Event{
				Transition: true, Type: corev1.EventTypeNormal, Reason: "FieldYielded", Action: "Apply",
				Message: fmt.Sprintf("%s %s: %q set %s, which is left to it", c.Kind, c.Name, c.Manager, c.FieldPath),
			})
		case v1alpha1.ConflictContested:
			events = append(events, Event{
				Transition: true, Type: corev1.EventTypeWarning, Reason: "FieldContested", Action: "Apply",
				Message: fmt.Sprintf("%s %s: %q keeps setting %s: the object is left as it is for a while; stop one of the two",
					c.Kind, c.Name, c.Manager, c.FieldPath),
			})
		}
	}
	return events
}

// instead says what to change in place of a child.
func instead(cluster string, taken outcome.Disputed) string {
	for _, conflict := range taken.Conflicts {
		if taken.Kind == "StatefulSet" && conflict.Path == ".spec.replicas" {
			return fmt.Sprintf("scale the PostgresCluster (kubectl scale pgc/%s), and let an autoscaler's scaleTargetRef "+
				"name the PostgresCluster", cluster)
		}
	}
	return "change the PostgresCluster instead"
}
