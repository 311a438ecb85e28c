package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
)

var conflictManager = regexp.MustCompile(`conflict with "([^"]*)"`)

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
		manager := "unknown"
		if match := conflictManager.FindStringSubmatch(cause.Message); match != nil {
			manager = match[1]
		}
		conflicts = append(conflicts, outcome.Conflict{Manager: manager, Path: cause.Field})
	}
	slices.SortFunc(conflicts, func(a, b outcome.Conflict) int {
		return cmp.Or(strings.Compare(a.Manager, b.Manager), strings.Compare(a.Path, b.Path))
	})
	return slices.Compact(conflicts)
}

// resolve leaves out what is yielded and takes back the rest, unless it is fought over.
func (p *Pass) resolve(ctx context.Context, r request, conflicts []outcome.Conflict) {
	var ours []outcome.Conflict
	var yielded [][]string
	for _, conflict := range conflicts {
		if path := metadataPath(conflict.Path); path != nil && p.yield(conflict.Path) {
			yielded = append(yielded, path)
		} else {
			ours = append(ours, conflict)
		}
	}
	var options []client.ApplyOption
	if len(ours) > 0 {
		if contested, wait := p.memory.contested(r.key, ours, p.now()); len(contested) > 0 {
			p.Result.Fail(r.key, outcome.Failure{
				Class: outcome.ClassContested, RetryAfter: wait,
				Message: fmt.Sprintf("keeps being changed by another field manager: %s; stop one of the two", outcome.Describe(contested)),
			})
			return
		}
		options = append(options, client.ForceOwnership)
	}
	answer, err := p.apply(ctx, r, yielded, options...)
	if err != nil {
		p.refused(r.key, err)
		return
	}
	if len(ours) > 0 {
		p.memory.record(r.key, ours, p.now())
		p.Result.TakenBack = append(p.Result.TakenBack, outcome.TakenBack{Key: r.key, Conflicts: ours})
	}
	p.stored(r, answer)
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
		m.fights[f] = recent
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
