package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// fight is one field that one manager keeps taking.
type fight struct {
	outcome.Key
	outcome.Conflict
}

const (
	// fightWindow and fightRounds: a field taken back more often than this within the window is contested.
	fightWindow = 10 * time.Minute
	fightRounds = 3
	// probePeriod is how often it is looked at most whether a fight has ended, while the object keeps changing.
	probePeriod = 5 * time.Second
)

// contest is a fight that was given up for a while: nothing is sent until the object changes or the time is over.
type contest struct {
	conflicts []outcome.Conflict
	// hash of the intent, and uid and rv of the object, when it was last looked at.
	hash   uint64
	uid    types.UID
	rv     string
	probed time.Time
	until  time.Time
}

var (
	conflictManager     = regexp.MustCompile(`conflict with ("(?:[^"\\]|\\.)*")`)
	conflictSubresource = regexp.MustCompile(`with subresource "([^"]*)"`)
)

// unnamedManager stands for one that the server does not name.
const unnamedManager = "unknown"

// Conflicts lists the fields and managers that a conflict names, sorted.
func Conflicts(err error) []outcome.Conflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var conflicts []outcome.Conflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		conflict := outcome.Conflict{Manager: unnamedManager, Path: cause.Field}
		if match := conflictManager.FindStringSubmatch(cause.Message); match != nil {
			if name, unquoted := strconv.Unquote(match[1]); unquoted == nil {
				conflict.Manager = name
			}
		}
		if match := conflictSubresource.FindStringSubmatch(cause.Message); match != nil {
			conflict.Subresource = match[1]
		}
		conflicts = append(conflicts, conflict)
	}
	slices.SortFunc(conflicts, func(a, b outcome.Conflict) int {
		return cmp.Or(strings.Compare(a.Manager, b.Manager), strings.Compare(a.Subresource, b.Subresource),
			strings.Compare(a.Path, b.Path))
	})
	return slices.Compact(conflicts)
}

// resolve leaves out what is yielded and takes back the rest, unless it is fought over. It says whether the intent must be
// applied once more, for what others left.
func (p *Pass) resolve(ctx context.Context, r *request, conflicts []outcome.Conflict) (again bool) {
	var ours, unnamed, theirs []outcome.Conflict
	var yielded [][]string
	var options []client.ApplyOption
	for _, conflict := range conflicts {
		path := metadataPath(conflict.Path)
		switch {
		case path != nil && p.yield(conflict.Path):
			yielded, theirs = append(yielded, path), append(theirs, conflict)
			continue
		case conflict.Manager == unknownWriter:
			unnamed = append(unnamed, conflict) // It tells nobody whom to ask, so it is told only when it is a fight.
		default:
			ours = append(ours, conflict)
		}
		options = []client.ApplyOption{client.ForceOwnership}
	}
	if contested, wait := p.memory.contested(r.key, slices.Concat(ours, unnamed), p.now()); len(contested) > 0 {
		p.giveUp(r, contested, wait)
		return false
	}
	answer, err := p.apply(ctx, *r, yielded, options...)
	if err != nil {
		p.refused(r.key, err)
		return false
	}
	p.memory.record(r.key, unnamed, p.now())
	if len(ours) > 0 {
		p.memory.record(r.key, ours, p.now())
		p.Result.TakenBack = append(p.Result.TakenBack, outcome.Disputed{Key: r.key, Conflicts: ours})
	}
	if p.migrate(ctx, r.key, answer) {
		return true
	}
	p.stored(*r, answer, theirs)
	return false
}

// giveUp leaves a contested child as it is for a while.
func (p *Pass) giveUp(r *request, conflicts []outcome.Conflict, wait time.Duration) {
	c := contest{conflicts: conflicts, hash: r.hash, uid: r.uid, probed: p.now(), until: p.now().Add(wait)}
	if r.live != nil {
		c.rv = r.live.GetResourceVersion()
	}
	p.memory.contests[r.key] = c
	p.failContested(r.key, conflicts, wait)
}

func (p *Pass) failContested(key outcome.Key, conflicts []outcome.Conflict, wait time.Duration) {
	p.Result.Fail(key, outcome.Failure{
		Class: outcome.ClassContested, RetryAfter: wait, Conflicts: conflicts,
		Message: fmt.Sprintf("keeps being changed by another field manager: %s; stop one of the two", outcome.Describe(conflicts)),
	})
}

// fought says that a fight over a child goes on as far as is known without asking the server: nothing has changed since
// it was last looked at, or that was only just.
func (p *Pass) fought(r *request) bool {
	c, known := p.memory.contests[r.key]
	if !known || c.hash != r.hash || r.live != nil && c.uid != r.live.GetUID() {
		return false
	}
	wait := c.until.Sub(p.now())
	// One whose labels are fought over is not in the cache.
	if r.live == nil || r.live.GetResourceVersion() != c.rv {
		wait = min(wait, c.probed.Add(probePeriod).Sub(p.now()))
	}
	if wait <= 0 {
		return false
	}
	p.failContested(r.key, c.conflicts, wait)
	return true
}

// metadataPath splits the path of a label or an annotation of the object itself, whose key may hold dots.
func metadataPath(path string) []string {
	for _, parent := range []string{"labels", "annotations"} {
		if key, ok := strings.CutPrefix(path, ".metadata."+parent+"."); ok {
			return []string{"metadata", parent, key}
		}
	}
	return nil
}

// contested are the conflicts that were resolved too often of late, and how long until that is forgotten.
func (m *memory) contested(key outcome.Key, conflicts []outcome.Conflict, now time.Time) (fought []outcome.Conflict, wait time.Duration) {
	for _, conflict := range conflicts {
		f := fight{key, conflict}
		recent := slices.DeleteFunc(m.fights[f], func(t time.Time) bool { return now.Sub(t) >= fightWindow })
		if m.fights[f] = recent; len(recent) == 0 {
			delete(m.fights, f)
		}
		if len(recent) >= fightRounds {
			fought = append(fought, conflict)
			wait = max(wait, recent[0].Add(fightWindow).Sub(now))
		}
	}
	return fought, wait
}

func (m *memory) record(key outcome.Key, conflicts []outcome.Conflict, now time.Time) {
	for _, conflict := range conflicts {
		f := fight{key, conflict}
		m.fights[f] = append(m.fights[f], now)
	}
}
