package runner

import (
	"context"
	"time"

	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

const (
	// slotsInterval is how often an instance looks whether its replication slots are as they should be.
	slotsInterval = 3 * time.Second
	// keptLife is for how long a replica that goes on streaming believes what its primary said of its slots.
	keptLife = 30 * time.Second
)

// slotsDue looks after the slots, and tells whether a primary's have to be made or dropped; a replica's are at once.
func (w *serverWatch) slotsDue(ctx context.Context, o pg.Observation, streaming bool) (due bool) {
	if time.Since(w.slotsAt) < slotsInterval {
		return false
	}
	w.slotsAt = time.Now()
	r := w.runner
	r.mu.Lock()
	slots := r.slots()
	kept := r.replicaKeeps(o, streaming)
	r.mu.Unlock()
	var err error
	if o.Recovering {
		err = pg.ReplicaSlots(ctx, w.conn, slots, kept)
	} else {
		due, err = w.primarySlots(ctx, slots)
	}
	if err != nil {
		r.log.Error(err, "Failed to look after the replication slots")
	}
	return due
}

// primarySlots notes what a primary's slots keep.
func (w *serverWatch) primarySlots(ctx context.Context, slots []string) (due bool, err error) {
	bySlot, err := pg.KeptBySlots(ctx, w.conn)
	if err != nil {
		return false, err
	}
	r := w.runner
	r.mu.Lock()
	r.kept, r.keptAt = map[string]postgres.LSN{}, time.Now()
	for _, member := range r.others() {
		if at, keeps := bySlot[r.slotOf(member)]; keeps {
			r.kept[member] = at
		}
	}
	r.mu.Unlock()
	return pg.SlotsDue(ctx, w.conn, slots)
}

// replicaKeeps is from where on a replica keeps the log in each slot; nil while that is not known. For its primary it
// keeps what it would need itself, on which that one could be rewound. The caller holds mu.
func (r *Runner) replicaKeeps(o pg.Observation, streaming bool) map[string]postgres.LSN {
	last := r.keptAt
	if last.Before(r.begun) {
		last = r.begun
	}
	if streaming && time.Since(last) > keptLife {
		// Nobody says when it may be released.
		return map[string]postgres.LSN{}
	}
	if r.kept == nil {
		return nil
	}
	bySlot := map[string]postgres.LSN{}
	for member, at := range r.kept {
		bySlot[r.slotOf(member)] = at
	}
	if primary := r.facts.Lease.HeldBy(); primary != "" && o.Redo > 0 {
		bySlot[r.slotOf(primary)] = o.Redo
	}
	return bySlot
}

// slotOf is the name of the slot of a member; that of no instance of the cluster is empty.
func (r *Runner) slotOf(member string) string {
	ordinal, ok := r.options.Cluster.Ordinal(member)
	if !ok {
		return ""
	}
	return pg.SlotName(ordinal)
}

// keeps is what a primary says of its slots. The caller holds mu.
func (r *Runner) keeps() map[string]string {
	if r.kept == nil {
		return nil
	}
	said := map[string]string{}
	for member, at := range r.kept {
		said[member] = at.String()
	}
	return said
}

// primaryKeeps notes what a replica's primary said of its slots. The caller holds mu.
func (r *Runner) primaryKeeps(said map[string]string) {
	if said == nil {
		return
	}
	kept := map[string]postgres.LSN{}
	for member, text := range said {
		if at, err := postgres.ParseLSN(text); err == nil {
			kept[member] = at
		}
	}
	r.kept, r.keptAt = kept, time.Now()
}
