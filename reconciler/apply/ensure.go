package apply

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ensure creates an object that is never applied over and never read: one that exists is kept. It asks the server
// once in a period.
func (p *Pass) Ensure(ctx context.Context, gvk schema.GroupVersionKind, object client.Object, period time.Duration) {
	key := Key{GroupKind: gvk.GroupKind(), Name: object.GetName()}
	checked, known := p.memory.ensured[key]
	if known && p.now().Sub(checked) < period {
		p.Result.add(key, Skipped)
		return
	}
	if p.Result.Gone || !p.confirm(ctx) {
		return
	}
	p.Result.Calls++
	err := p.writer.Create(ctx, object, p.manager)
	switch {
	case err == nil:
		p.Result.add(key, Created)
	case apierrors.IsAlreadyExists(err):
		if !known {
			if _, failure := p.identify(ctx, key); failure != nil {
				p.Result.fail(key, *failure)
				return
			}
		}
		p.Result.add(key, Unchanged)
	default:
		delete(p.memory.ensured, key)
		p.Result.fail(key, Failure{Class: Classify(err), Message: message(err), Err: err})
		return
	}
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

// identify reads live whose object has the name: the UID when it is the owner's, else a failure. Only metadata is read.
func (p *Pass) identify(ctx context.Context, key Key) (types.UID, *Failure) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(p.versioned(key.GroupKind))
	err := p.live.Get(ctx, client.ObjectKey{Namespace: p.owner.Namespace, Name: key.Name}, object)
	switch {
	case err != nil:
		return "", &Failure{Class: Classify(err), Message: message(err), Err: err}
	case !object.DeletionTimestamp.IsZero():
		return "", &Failure{Class: ClassDeleting, Message: "is being deleted; it is made anew when it is gone"}
	case p.owns(object):
		return object.UID, nil
	}
	controller := metav1.GetControllerOf(object)
	if controller != nil && controller.Kind == p.owner.Kind.Kind && controller.Name == p.owner.Name {
		return "", &Failure{Class: ClassDeleting, Message: "is left from an earlier " + controller.Kind +
			" of this name and is being deleted; it is made anew when it is gone"}
	}
	whose := "nobody"
	if controller != nil {
		whose = fmt.Sprintf("%s %s", controller.Kind, controller.Name)
	}
	return "", &Failure{Class: ClassForeign, Message: fmt.Sprintf(
		"exists, is controlled by %s and is not part of this cluster: it is left alone; delete or rename it", whose)}
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

// versioned finds the version under which the owner's children of a kind are read; all are v1.
func (p *Pass) versioned(kind schema.GroupKind) schema.GroupVersionKind {
	return kind.WithVersion("v1")
}

// Delete deletes an object if it still is the one that was seen. With orphan, what it controls stays.
func (p *Pass) Delete(ctx context.Context, gvk schema.GroupVersionKind, name string, uid types.UID, orphan bool) {
	key := Key{GroupKind: gvk.GroupKind(), Name: name}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	object.SetNamespace(p.owner.Namespace)
	object.SetName(name)
	options := []client.DeleteOption{client.Preconditions{UID: &uid}}
	if orphan {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}
	p.Result.Calls++
	err := p.writer.Delete(ctx, object, options...)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		p.Result.fail(key, Failure{Class: Classify(err), Message: message(err), Err: err})
		return
	}
	delete(p.memory.applied, key)
	p.Result.add(key, Deleted)
}
