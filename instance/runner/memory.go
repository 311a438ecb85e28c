package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
)

// memory is what an agent must know when the API server does not answer, and what must survive it. It is kept on
// the data volume and has no secrets.
type memory struct {
	// Config that was last in force.
	Config *contract.Config `json:"config,omitempty"`
	// Lease as last seen.
	Lease *lease.Lease `json:"lease,omitempty"`
	// LedTerm is the last term in which PostgreSQL took writes on the volume; it is on disk before it does. SeenTerm is
	// the last term that was seen.
	LedTerm  int32 `json:"ledTerm,omitempty"`
	SeenTerm int32 `json:"seenTerm,omitempty"`
	// Promised is the last term of the Lease from which the instance promised never to stream again.
	Promised int32 `json:"promised,omitempty"`
	// LastOrder that was carried out.
	LastOrder string `json:"lastOrder,omitempty"`
	// Ahead says that the data has what the primary lost. It is not asked again: a primary that has written as much
	// since seems to be one to follow.
	Ahead string `json:"ahead,omitempty"`
	// Good are settings that PostgreSQL started with.
	Good *goodSettings `json:"good,omitempty"`
	// HBA are the lines of pg_hba.conf that PostgreSQL last took.
	HBA []string `json:"hba,omitempty"`
}

type goodSettings struct {
	Parameters map[string]string `json:"parameters"`
	Hash       string            `json:"hash"`
}

// diagnosis is the one that stays until the data is replaced.
func (m memory) diagnosis() agent.Diagnosis {
	if m.Ahead == "" {
		return agent.Diagnosis{}
	}
	return agent.Diagnosis{Verdict: agent.VerdictAhead, Detail: m.Ahead}
}

func recall(volume pg.Volume) (memory, error) {
	var m memory
	content, err := os.ReadFile(volume.StateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return memory{}, fmt.Errorf("cannot read %s: %w", volume.StateFile(), err)
	}
	return m, nil
}

// leads notes on disk that PostgreSQL is about to take writes in a term.
func (r *Runner) leads() error {
	r.mu.Lock()
	term := r.facts.Lease.Term
	r.led(term)
	r.mu.Unlock()
	return r.saveMemory()
}

// led notes that the volume's data is that of the primary of a term. The caller holds mu.
func (r *Runner) led(term int32) {
	r.memory.LedTerm, r.memory.SeenTerm = max(r.memory.LedTerm, term), max(r.memory.SeenTerm, term)
	r.facts.LedTerm = r.memory.LedTerm
}

// remember has the memory written soon. The caller holds mu, which no disk may hold up.
func (r *Runner) remember() { r.unsaved.ring() }

// keepMemory writes the memory whenever it changed, until ctx ends.
func (r *Runner) keepMemory(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.unsaved:
		}
		if err := r.saveMemory(); err != nil {
			// Only a later API outage together with a restart would miss it.
			r.log.Error(err, "Failed to write the agent's memory")
		}
	}
}

// saveMemory writes the memory, once the volume is the agent's.
func (r *Runner) saveMemory() error {
	// What is written later is never older.
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	locked := r.locked
	content, err := json.Marshal(r.memory)
	r.mu.Unlock()
	if err != nil || !locked {
		return err
	}
	return pg.WriteFile(r.options.Volume.StateFile(), content)
}
