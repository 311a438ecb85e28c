package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// memory is what is remembered of one owner's children.
type memory struct {
	applied map[outcome.Key]applied
	ensured map[outcome.Key]time.Time
	fights  map[fight][]time.Time
	asked   map[schema.GroupKind]answered
	// contests are the fights that go on.
	contests map[outcome.Key]contest
}

// applied is the last apply of one child that was stored.
type applied struct {
	uid  types.UID
	rv   string
	hash uint64
	// settings identifies all of the stored object but its status, where the object's kind allows it.
	settings string
	// yielded are the fields of the intent that were left to others.
	yielded []outcome.Conflict
	at      time.Time
	// seen is set once the cache has shown the object: from then on its absence means that it is gone.
	seen bool
}

// Forget drops what is remembered of an owner.
func (a *Applier) Forget(owner types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, owner)
}

func (a *Applier) memory(owner types.UID) *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.owners[owner]
	if m == nil {
		m = &memory{
			applied: map[outcome.Key]applied{}, ensured: map[outcome.Key]time.Time{},
			fights: map[fight][]time.Time{}, contests: map[outcome.Key]contest{},
			asked: map[schema.GroupKind]answered{},
		}
		a.owners[owner] = m
	}
	return m
}

// CacheLag is how long the cache may take to show what was written, before it is asked whether it is really there.
const CacheLag = 10 * time.Second

// current says that the object is as it was when the same intent was last applied, or that the cache has not caught
// up with that yet; an event will tell of anything later.
func (p *Pass) current(r *request, last *applied) bool {
	if last.hash != r.hash {
		return false
	}
	if r.live == nil {
		return !last.seen && p.now().Sub(last.at) < CacheLag
	}
	if r.live.GetUID() != last.uid {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(r.live.GetResourceVersion(), last.rv)
	if err != nil {
		return r.live.GetResourceVersion() == last.rv
	}
	last.seen = last.seen || order >= 0
	return order <= 0 || (last.settings != "" && last.settings == settings(r.live)) ||
		(len(last.yielded) == 0 && contains(r.live, r.body))
}
