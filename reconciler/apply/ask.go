package apply

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// Question is an object that somebody wants to create, or would have to create again.
type Question struct {
	Key    outcome.Key
	Object client.Object
	// Version identifies all of the object that matters. An answer holds for some time for the same version.
	Version string
	// Around identifies what a refusal may depend on besides: it is asked again at once when that changes.
	Around uint64
	// Explain completes a refusal, once for each; nil when there is nothing to say.
	Explain func(context.Context, *outcome.Failure)
}

// Answer is what the server says.
type Answer struct {
	// Object is what it would store. It is as it was asked for when an object of the name is there already.
	Object client.Object
	// Failure says why it would not; nil when it would, and when it cannot say.
	Failure *outcome.Failure
	// Unsure is why the server cannot say; told once.
	Unsure string
}

// How long answers hold. A yes is for what is done next, so it need not hold for long.
const (
	yesPeriod = 30 * time.Second
	noPeriod  = 15 * time.Second
	// mutePeriod is for a server that cannot answer.
	mutePeriod = 10 * time.Minute
)

// answered is an answer that is remembered.
type answered struct {
	Answer
	version string
	around  uint64
	until   time.Time
}

// Ask asks the server by a dry run whether it would create an object. Names are compared last, after admission, so that
// "already exists" is a yes.
func (p *Pass) Ask(ctx context.Context, q Question) Answer {
	last, known := p.memory.asked[q.Key.GroupKind]
	if known && last.version == q.Version && p.now().Before(last.until) && (last.Failure == nil || last.around == q.Around) {
		if last.Failure != nil {
			again := *last.Failure
			again.RetryAfter = last.until.Sub(p.now())
			last.Failure = &again
		}
		return last.Answer
	}
	a := answered{Answer: Answer{Object: q.Object}, version: q.Version, around: q.Around}
	p.Result.Calls++
	err := p.writer.Create(ctx, q.Object, p.manager, client.DryRunAll)
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		a.until = p.now().Add(yesPeriod)
	case mute(err):
		a.until = p.now().Add(mutePeriod)
		p.memory.asked[q.Key.GroupKind] = a
		a.Unsure = message(err, "")
		return a.Answer
	default:
		class := Classify(err)
		a.Failure = &outcome.Failure{Key: q.Key, Class: class, Message: message(err, class), Err: err}
		if a.Failure.Class == outcome.ClassTransient {
			return a.Answer // Not an answer to this question; the work queue's back-off repeats it.
		}
		if a.Failure.Class == outcome.ClassNamespaceTerminating {
			p.Result.Gone = true
			return a.Answer
		}
		if q.Explain != nil {
			q.Explain(ctx, a.Failure)
		}
		a.Failure.RetryAfter = noPeriod
		a.until = p.now().Add(noPeriod)
	}
	p.memory.asked[q.Key.GroupKind] = a
	return a.Answer
}

// Sent says that an intent was applied already and the cache may not show it yet, so that nothing will be sent for it.
func (p *Pass) Sent(intent Intent) bool {
	r, err := newRequest(p.owner.Namespace, intent)
	if err != nil {
		return false
	}
	last, known := p.memory.applied[r.key]
	return known && p.current(&r, &last)
}

// mute says that a server cannot answer: a webhook has effects that a dry run must not have, or the right to create such
// objects is missing, which the operator needs for this question alone.
func mute(err error) bool {
	text := message(err, "")
	return apierrors.IsBadRequest(err) && strings.Contains(text, "does not support dry run") ||
		apierrors.IsForbidden(err) && strings.Contains(text, ` is forbidden: User "`) && strings.Contains(text, " cannot create resource ")
}
