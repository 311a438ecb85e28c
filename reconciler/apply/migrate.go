package apply

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// Former are the field managers whose fields become the operator's, so that what it no longer renders goes. Left alone,
// their entries would own such fields for ever.
type Former struct {
	// Names that were the operator's own: all that they own is taken over.
	Names []string
	// Writers are names that anybody may have, because programs get them without asking. Their fields are taken over
	// only where they also wrote what makes the object the owner's, as none but an operator of it does.
	Writers []string
}

// unknownWriter stands for everybody who wrote an object before the API server kept books.
const unknownWriter = "before-first-apply"

// filledByOthers are the kinds of which others rightly write parts, such as a claim's volume and a slice's addresses: of
// these it is not told apart what an unknown writer wrote.
var filledByOthers = []string{"PersistentVolumeClaim", "EndpointSlice"}

// migrations is how often a migration is tried when others write the object at the same time.
const migrations = 3

// inherit takes over the fields of former managers when a conflict names one. Whoever takes them again and again, such
// as an older operator that still runs, is no former manager: that is a fight.
func (p *Pass) inherit(ctx context.Context, r *request, conflicts []outcome.Conflict) bool {
	former := slices.DeleteFunc(slices.Clone(conflicts), func(c outcome.Conflict) bool { return !p.former.named(c.Manager) })
	if len(former) == 0 {
		return false
	}
	if contested, _ := p.memory.contested(r.key, former, p.now()); len(contested) > 0 {
		return false
	}
	object, err := p.metadata(ctx, r.key)
	if err != nil || !p.migrate(ctx, r.key, object) {
		return false
	}
	p.memory.record(r.key, former, p.now())
	return true
}

func (f *Former) named(manager string) bool {
	return slices.Contains(f.Names, manager) || slices.Contains(f.Writers, manager)
}

// migrate makes the fields of former managers the operator's own; the next apply drops those that are no longer wanted.
// It says whether anything was migrated. An error is none of this pass: the entries are found again at the next apply.
func (p *Pass) migrate(ctx context.Context, key outcome.Key, object client.Object) bool {
	for range migrations {
		names := p.inherited(key, object)
		if len(names) == 0 {
			return false
		}
		patch, err := upgrade(object, names, string(p.manager))
		if err != nil || patch == nil {
			return false
		}
		p.Result.Calls++
		err = p.writer.Patch(ctx, p.child(key), client.RawPatch(types.JSONPatchType, patch), p.manager)
		if err == nil {
			p.Result.Migrated = append(p.Result.Migrated, outcome.Migrated{Key: key, Managers: names})
			return true
		}
		if Classify(err) != outcome.ClassStale {
			return false
		}
		if object, err = p.metadata(ctx, key); err != nil {
			return false
		}
	}
	return false
}

// inherited are the names of the former managers of an object, sorted.
func (p *Pass) inherited(key outcome.Key, object client.Object) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource != "" {
			continue
		}
		updated := entry.Operation == metav1.ManagedFieldsOperationUpdate
		switch {
		case updated && entry.Manager == string(p.manager), slices.Contains(p.former.Names, entry.Manager):
		case updated && slices.Contains(p.former.Writers, entry.Manager) && p.tied(object, entry) &&
			(entry.Manager != unknownWriter || !slices.Contains(filledByOthers, key.Kind)):
		default:
			continue
		}
		names = append(names, entry.Manager)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tied says that an entry owns what makes an object the owner's: the reference to its controller, or where it has none
// the owner's labels.
func (p *Pass) tied(object metav1.Object, entry metav1.ManagedFieldsEntry) bool {
	owned := fieldpath.NewSet()
	if entry.FieldsV1 == nil || owned.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
		return false
	}
	if metav1.GetControllerOfNoCopy(object) != nil {
		return owned.Has(fieldpath.MakePathOrDie("metadata", "ownerReferences",
			fieldpath.KeyByFields("uid", string(p.owner.UID))))
	}
	for label := range p.owner.Labels {
		if !owned.Has(fieldpath.MakePathOrDie("metadata", "labels", label)) {
			return false
		}
	}
	return true
}

// upgrade is the patch that gives a manager the fields of others. It names the resourceVersion that it is about. The
// library knows of updates only, and of one entry of a name.
func upgrade(object client.Object, names []string, manager string) ([]byte, error) {
	entries, others := slices.Clone(object.GetManagedFields()), sets.New(names...)
	for i := range entries {
		entry := &entries[i]
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" &&
			entry.Manager != manager && slices.Contains(names, entry.Manager) {
			entry.Manager += " (Apply)"
			entry.Operation = metav1.ManagedFieldsOperationUpdate
			others.Insert(entry.Manager)
		}
	}
	copied := &metav1.PartialObjectMetadata{}
	copied.SetResourceVersion(object.GetResourceVersion())
	copied.SetManagedFields(entries)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(copied, others, manager)
	if err != nil {
		return nil, fmt.Errorf("migrating managed fields: %w", err)
	}
	return patch, nil
}
