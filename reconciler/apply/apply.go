// Package apply is the only writer of a cluster's children: server-side apply
// with classified conflicts, creation of what must not be overwritten,
// preconditioned deletes, and no call at all where nothing changed.
package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// Writer is what apply may do to objects.
type Writer interface {
	Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Reader reads live, past any cache.
type Reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// Owner is the object whose children are applied.
type Owner struct {
	Namespace string
	Name      string
	Kind      schema.GroupKind
	UID       types.UID
	// New says that nothing of the owner is known to exist, so that what it needs is hardly there.
	New bool
	// Labels mark a child without a controller as the owner's.
	Labels map[string]string
	// Confirm asks the server whether the owner still exists and is not being deleted. It is called once in a pass,
	// before the first object is created: a stale cache must not bring children of the dead to life.
	Confirm func(ctx context.Context) (bool, error)
}

// Intent is one child as it shall be.
type Intent struct {
	Object runtime.ApplyConfiguration
	// Live is what the cache shows of it; nil when nothing.
	Live metav1.Object
	// Makes names what another controller will make, or overwrite, on behalf of the child, as its namesake.
	Makes schema.GroupKind
}

// Applier applies and remembers what it applied. It is safe for concurrent passes of different owners.
type Applier struct {
	writer  Writer
	live    Reader
	manager client.FieldOwner
	former  Former
	yield   func(path string) bool
	now     func() time.Time

	mu     sync.Mutex
	owners map[types.UID]*memory
}

// New returns an Applier. Fields of former managers become the manager's. Fields at paths that yield accepts are left to
// other managers; all others are taken back.
func New(
	writer Writer, live Reader, manager string, former Former, yield func(path string) bool, now func() time.Time,
) *Applier {
	return &Applier{
		writer: writer, live: live, manager: client.FieldOwner(manager), former: former, yield: yield, now: now,
		owners: map[types.UID]*memory{},
	}
}

// Pass is one pass over the children of one owner.
type Pass struct {
	*Applier
	owner     Owner
	memory    *memory
	confirmed bool
	Result    outcome.Result
}

// Begin starts a pass.
func (a *Applier) Begin(owner Owner) *Pass {
	return &Pass{Applier: a, owner: owner, memory: a.memory(owner.UID)}
}

// All applies intents in order.
func (p *Pass) All(ctx context.Context, intents []Intent) {
	for _, intent := range intents {
		if p.Result.Gone || ctx.Err() != nil {
			return
		}
		p.one(ctx, intent)
	}
}

// request is one apply under way.
type request struct {
	key  outcome.Key
	body []byte
	hash uint64
	live metav1.Object
	uid  types.UID
}

func (p *Pass) one(ctx context.Context, intent Intent) {
	r, err := newRequest(p.owner.Namespace, intent)
	if err != nil {
		p.Result.Fail(r.key, outcome.Failure{Class: outcome.ClassInternal, Message: err.Error(), Err: err})
		return
	}
	if intent.Live != nil && intent.Live.GetDeletionTimestamp() != nil {
		p.Result.Fail(r.key, outcome.Failure{Class: outcome.ClassDeleting, Message: "is being deleted; it is made anew when it is gone"})
		return
	}
	last, known := p.memory.applied[r.key]
	if known && p.current(&r, &last) {
		p.memory.applied[r.key] = last
		p.settled(r.key, outcome.Skipped, last.yielded)
		return
	}
	if p.fought(&r) {
		return
	}
	switch {
	case r.live != nil:
		r.uid = r.live.GetUID()
	case known && !last.seen && p.now().Sub(last.at) < CacheLag:
		r.uid = last.uid
	}
	if r.uid == "" && (!p.confirm(ctx) || !p.free(ctx, intent.Makes, r.key.Name)) {
		return
	}
	p.send(ctx, r)
}

func (p *Pass) confirm(ctx context.Context) bool {
	if p.confirmed {
		return true
	}
	alive, err := p.owner.Confirm(ctx)
	switch {
	case err != nil:
		p.Result.Fail(outcome.Key{GroupKind: p.owner.Kind, Name: p.owner.Name},
			outcome.Failure{Class: outcome.ClassTransient, Message: "could not be read", Err: err})
	case !alive:
		p.Result.Gone = true
	default:
		p.confirmed = true
	}
	return p.confirmed
}

// mustNotExist is a resourceVersion that no object has. A server ignores it when an apply creates an object, and
// refuses the apply when the object exists: the check for foreign objects costs no read and leaves no gap.
const mustNotExist = "1"

// configuration is a fresh apply configuration of the request: an apply fills in the server's answer.
func (r *request) configuration(yielded [][]string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(r.body, &object.Object); err != nil {
		return nil, fmt.Errorf("decoding the configuration of %s %s: %w", r.key.Kind, r.key.Name, err)
	}
	for _, path := range yielded {
		unstructured.RemoveNestedField(object.Object, path...)
	}
	if r.uid == "" {
		object.SetResourceVersion(mustNotExist)
	} else {
		object.SetUID(r.uid)
	}
	return object, nil
}

func newRequest(namespace string, intent Intent) (request, error) {
	r := request{live: intent.Live}
	body, err := json.Marshal(intent.Object)
	if err != nil {
		return r, fmt.Errorf("encoding an apply configuration: %w", err)
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Name, Namespace string }
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return r, fmt.Errorf("decoding an apply configuration: %w", err)
	}
	r.key = outcome.Key{GroupKind: head.GroupVersionKind().GroupKind(), Name: head.Metadata.Name}
	if head.Metadata.Namespace != namespace {
		return r, fmt.Errorf("%s %s is in namespace %q, its owner in %q", head.Kind, head.Metadata.Name,
			head.Metadata.Namespace, namespace)
	}
	hash := fnv.New64a()
	_, _ = hash.Write(body)
	r.body, r.hash = body, hash.Sum64()
	return r, nil
}

// attempts are enough for an object that is found to exist, was written by former managers, has fields of others, and is
// applied once more to drop what the former ones left.
const attempts = 5

// send applies without force first, and reacts to what the server answers.
func (p *Pass) send(ctx context.Context, r request) {
	rewritten := false
	for attempt := range attempts {
		answer, err := p.apply(ctx, r, nil)
		class := Classify(err)
		exists := class == outcome.ClassStale || class == outcome.ClassFieldConflict
		switch {
		case err == nil:
			if migrated := p.migrate(ctx, r.key, answer); !migrated {
				p.stored(r, answer, nil)
				return
			}
			r.uid = answer.GetUID()
		case exists && r.uid == "" && attempt == 0:
			uid, failure := p.identify(ctx, r.key)
			if failure != nil {
				p.Result.Fail(r.key, *failure)
				return
			}
			r.uid = uid
		case class == outcome.ClassFieldConflict:
			conflicts := Conflicts(err)
			if !p.inherit(ctx, &r, conflicts) && !p.resolve(ctx, &r, conflicts) {
				return
			}
		case class == outcome.ClassInvalid && !rewritten && p.rewrite(ctx, &r):
			rewritten = true
		default:
			if class == outcome.ClassGone || class == outcome.ClassReplaced {
				delete(p.memory.applied, r.key)
			}
			p.refused(r.key, err)
			return
		}
	}
	p.Result.Fail(r.key, outcome.Failure{Class: outcome.ClassStale, Message: "is being written by others at the same time"})
}

// refused records an error of the server. In a namespace that is going away nothing more is tried.
func (p *Pass) refused(key outcome.Key, err error) {
	class := Classify(err)
	if class == outcome.ClassNamespaceTerminating {
		p.Result.Gone = true
		return
	}
	p.Result.Fail(key, outcome.Failure{Class: class, Message: message(err, class), Err: err})
}

func (p *Pass) apply(
	ctx context.Context, r request, yielded [][]string, options ...client.ApplyOption,
) (*unstructured.Unstructured, error) {
	object, err := r.configuration(yielded)
	if err != nil {
		return nil, err
	}
	p.Result.Calls++
	err = p.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), append(options, p.manager)...)
	return object, err
}

func (p *Pass) stored(r request, answer *unstructured.Unstructured, yielded []outcome.Conflict) {
	change := outcome.Changed
	switch {
	case r.uid == "":
		change = outcome.Created
	case r.live != nil && r.live.GetResourceVersion() == answer.GetResourceVersion():
		change = outcome.Unchanged
	}
	p.memory.applied[r.key] = applied{
		uid: answer.GetUID(), rv: answer.GetResourceVersion(), hash: r.hash, settings: settings(answer), at: p.now(),
		yielded: yielded, seen: r.live != nil,
	}
	p.settled(r.key, change, yielded)
}

// settled records a child that is as it shall be, but for what is yielded.
func (p *Pass) settled(key outcome.Key, change outcome.Outcome, yielded []outcome.Conflict) {
	delete(p.memory.contests, key)
	if len(yielded) > 0 {
		p.Result.Yielded = append(p.Result.Yielded, outcome.Disputed{Key: key, Conflicts: yielded})
	}
	p.Result.Add(key, change)
}
