package apply_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/outcome"
)

// oracle answers dry runs.
type oracle struct {
	apply.Writer
	t      *testing.T
	answer error
	asked  int
}

func (o *oracle) Create(_ context.Context, _ client.Object, options ...client.CreateOption) error {
	o.asked++
	given := &client.CreateOptions{}
	given.ApplyOptions(options)
	if len(given.DryRun) != 1 {
		o.t.Error("not a dry run")
	}
	return o.answer
}

func TestAsk(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(text string) error { return apierrors.NewForbidden(pods, "db-0", errors.New(text)) }
	tests := map[string]struct {
		answer error
		// class of the failure; empty for none.
		class  outcome.Class
		unsure bool
		// holds is how long the answer is remembered; changed is whether it is given up when the quotas change.
		holds   time.Duration
		changed bool
	}{
		"yes":                            {holds: 30 * time.Second},
		"yes: it is there already":       {answer: apierrors.NewAlreadyExists(pods, "db-0"), holds: 30 * time.Second},
		"quota":                          {answer: forbidden("exceeded quota: q"), class: outcome.ClassQuota, holds: 15 * time.Second, changed: true},
		"policy":                         {answer: forbidden("denied by x"), class: outcome.ClassForbidden, holds: 15 * time.Second, changed: true},
		"trouble":                        {answer: apierrors.NewInternalError(errors.New("failed calling webhook")), class: outcome.ClassTransient},
		"a webhook without dry run":      {answer: apierrors.NewBadRequest(`admission webhook "x" does not support dry run`), unsure: true, holds: 10 * time.Minute},
		"a pod that no server takes":     {answer: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "db-0", nil), class: outcome.ClassInvalid, holds: 15 * time.Second, changed: true},
		"a malformed request":            {answer: apierrors.NewBadRequest("nonsense"), class: outcome.ClassInvalid, holds: 15 * time.Second, changed: true},
		"a policy that speaks of rights": {answer: forbidden(`policy: you cannot create resource x`), class: outcome.ClassForbidden, holds: 15 * time.Second, changed: true},
		"the operator lacks the right": {
			answer: apierrors.NewForbidden(pods, "", errors.New(`User "operator" cannot create resource "pods" in API group "" in the namespace "ns"`)),
			unsure: true, holds: 10 * time.Minute,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			o := &oracle{t: t, answer: test.answer}
			applier := apply.New(o, nil, "test", apply.Former{}, nil, func() time.Time { return now })
			explained := 0
			ask := func(version string, around uint64) apply.Answer {
				pass := applier.Begin(apply.Owner{Namespace: "ns", Name: "db", UID: "1"})
				return pass.Ask(t.Context(), apply.Question{
					Key:    outcome.Key{GroupKind: schema.GroupKind{Kind: "Pod"}, Name: "db-0"},
					Object: &corev1.Pod{}, Version: version, Around: around,
					Explain: func(context.Context, *outcome.Failure) { explained++ },
				})
			}
			check := func(answer apply.Answer, first bool) {
				t.Helper()
				class := outcome.Class("")
				if answer.Failure != nil {
					class = answer.Failure.Class
				}
				if class != test.class || (answer.Unsure != "") != (first && test.unsure) {
					t.Errorf("class %q, unsure %q", class, answer.Unsure)
				}
			}
			check(ask("a", 1), true)
			if test.holds == 0 {
				if check(ask("a", 1), true); o.asked != 2 {
					t.Errorf("asked %d times", o.asked)
				}
				return
			}
			now = now.Add(test.holds - time.Second)
			answer := ask("a", 1)
			check(answer, false)
			if o.asked != 1 || answer.Failure != nil && answer.Failure.RetryAfter != time.Second {
				t.Errorf("asked %d times, failure %+v", o.asked, answer.Failure)
			}
			if ask("a", 2); (o.asked == 2) != test.changed {
				t.Errorf("quotas have changed: asked %d times", o.asked)
			}
			before := o.asked
			if ask("b", 2); o.asked != before+1 {
				t.Error("not asked for another version")
			}
			now = now.Add(test.holds)
			if ask("b", 2); o.asked != before+2 {
				t.Error("not asked again in time")
			}
			if (explained > 0) != (test.class != "") {
				t.Errorf("explained %d times", explained)
			}
		})
	}
}
