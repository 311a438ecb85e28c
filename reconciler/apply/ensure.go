package apply

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// Ensure creates an object that is never applied over and never read: one that exists is kept. It asks the server
// once in a period, by reading metadata only: whose it is may have changed since the last time. For a new owner it is
// created at once, and looked at only when the server says that it exists.
func (p *Pass) Ensure(
	ctx context.Context, key outcome.Key, period time.Duration, build func() client.Object,
) {
	if checked, known := p.memory.ensured[key]; known && p.now().Sub(checked) < period {
		p.Result.Add(key, outcome.Skipped)
		return
	}
	if p.Result.Gone || ctx.Err() != nil {
		return
	}
	delete(p.memory.ensured, key)
	failure := &outcome.Failure{Class: outcome.ClassGone}
	if !p.owner.New {
		_, failure = p.identify(ctx, key)
	}
	if failure != nil && failure.Class == outcome.ClassGone {
		if !p.confirm(ctx) {
			return
		}
		p.Result.Calls++
		switch err := p.writer.Create(ctx, build(), p.manager); {
		case err == nil:
			p.Result.Add(key, outcome.Created)
			p.memory.ensured[key] = p.now()
			return
		case !apierrors.IsAlreadyExists(err):
			p.refused(key, err)
			return
		}
		_, failure = p.identify(ctx, key)
	}
	if failure != nil {
		if failure.Class == outcome.ClassForeign {
			failure.Message += fmt.Sprintf(", because the operator makes this %s itself", key.Kind)
		}
		p.Result.Fail(key, *failure)
		return
	}
	p.Result.Add(key, outcome.Unchanged)
	p.memory.ensured[key] = p.now()
}

// NextEnsure is when the oldest check of an ensured object runs out.
func (p *Pass) NextEnsure(period time.Duration) time.Time {
	next := p.now().Add(period)
	for _, checked := range p.memory.ensured {
		if due := checked.Add(period); due.Before(next) {
			next = due
		}
	}
	return next
}

// Keep forgets the applies of children that are not wanted any more: nobody waits for the cache to show them.
func (p *Pass) Keep(wanted func(outcome.Key) bool) {
	maps.DeleteFunc(p.memory.applied, func(key outcome.Key, _ applied) bool { return !wanted(key) })
}

// Pending says that the cache does not show yet all that was written.
func (p *Pass) Pending() bool {
	for _, last := range p.memory.applied {
		if !last.seen {
			return true
		}
	}
	return false
}

// identify reads live whose object has the name: the UID when it is the owner's, else a failure. Only metadata is read.
func (p *Pass) identify(ctx context.Context, key outcome.Key) (types.UID, *outcome.Failure) {
	object, err := p.metadata(ctx, key)
	switch {
	case err != nil:
		class := Classify(err)
		return "", &outcome.Failure{Class: class, Message: message(err, class), Err: err}
	case !object.DeletionTimestamp.IsZero():
		return "", &outcome.Failure{Class: outcome.ClassDeleting, Message: "is being deleted; it is made anew when it is gone"}
	case p.owns(object):
		return object.UID, nil
	}
	controller := metav1.GetControllerOf(object)
	if controller != nil && controller.Kind == p.owner.Kind.Kind && controller.Name == p.owner.Name {
		return "", &outcome.Failure{Class: outcome.ClassDeleting, Message: "is left from an earlier " + controller.Kind +
			" of this name and is being deleted; it is made anew when it is gone"}
	}
	whose := "nobody"
	if controller != nil {
		whose = fmt.Sprintf("%s %s", controller.Kind, controller.Name)
	}
	remedy := "delete or rename it"
	if key.Kind == "PersistentVolumeClaim" {
		remedy = "it may hold somebody's data: give this " + p.owner.Kind.Kind + " another name"
	}
	return "", &outcome.Failure{Class: outcome.ClassForeign, Message: fmt.Sprintf(
		"exists, is controlled by %s and is not part of this cluster: it is left alone; %s", whose, remedy)}
}

// free says that another controller may make an object for us: none of the name exists, or it is the owner's.
func (p *Pass) free(ctx context.Context, kind schema.GroupKind, name string) bool {
	if kind.Kind == "" {
		return true
	}
	key := outcome.Key{GroupKind: kind, Name: name}
	_, failure := p.identify(ctx, key)
	if failure == nil || failure.Class == outcome.ClassGone {
		return true
	}
	p.Result.Fail(key, *failure)
	return false
}

// metadata reads the metadata of a child, with its managed fields, past the cache.
func (p *Pass) metadata(ctx context.Context, key outcome.Key) (*metav1.PartialObjectMetadata, error) {
	object := p.child(key)
	err := p.live.Get(ctx, client.ObjectKeyFromObject(object), object)
	return object, err //nolint:wrapcheck // The caller classifies it.
}

// child is the metadata of a child as far as its name tells. All kinds of children have a version v1.
func (p *Pass) child(key outcome.Key) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(key.WithVersion("v1"))
	object.SetNamespace(p.owner.Namespace)
	object.SetName(key.Name)
	return object
}

// owns says that an object is the owner's: it controls it; or nobody does, and labels or an earlier apply of ours say so.
func (p *Pass) owns(object metav1.Object) bool {
	if controller := metav1.GetControllerOfNoCopy(object); controller != nil {
		return controller.UID == p.owner.UID
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == string(p.manager) && entry.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	labels := object.GetLabels()
	for name, value := range p.owner.Labels {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// Delete deletes an object if it still is the one that was seen. With orphan, what it controls stays.
func (p *Pass) Delete(ctx context.Context, key outcome.Key, uid types.UID, orphan bool) {
	options := []client.DeleteOption{client.Preconditions{UID: &uid}}
	if orphan {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}
	p.Result.Calls++
	err := p.writer.Delete(ctx, p.child(key), options...)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		p.refused(key, err)
		return
	}
	delete(p.memory.applied, key)
	p.Result.Add(key, outcome.Deleted)
}
