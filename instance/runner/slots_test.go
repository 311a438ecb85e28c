package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// away has a replica miss both many segments of the log and a change of the primary: the new one still has the log.
func (c *trio) away(t *testing.T) {
	old := c.holder()
	var others []*host
	for _, h := range c.hosts {
		if h != old {
			others = append(others, h)
		}
	}
	missing, next := others[0], others[1]
	slot := func(h, of *host, want string) func() bool {
		return func() bool {
			got, err := h.sql("postgres", fmt.Sprintf("SELECT %s FROM pg_replication_slots WHERE slot_name = 'pg_operator_%s'",
				want, strings.TrimPrefix(of.name, "orders-db-")))
			return err == nil && got == "t"
		}
	}
	eventually(t, 20*time.Second, "the replica keeps log for all", func() bool {
		return slot(next, old, "restart_lsn IS NOT NULL")() && slot(next, missing, "restart_lsn IS NOT NULL")()
	})
	missing.halt()
	marker := filepath.Join(missing.pgdata(), "marker") // It does not survive a clone.
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := old.mustSQL("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn())")
	for range 5 {
		c.written++
		old.mustSQL("app", fmt.Sprintf("INSERT INTO public.note VALUES (%d)", c.written))
		old.mustSQL("postgres", "SELECT pg_switch_wal()")
	}
	old.mustSQL("postgres", "CHECKPOINT")
	end := old.mustSQL("postgres", "SELECT pg_current_wal_lsn()")
	eventually(t, 20*time.Second, "the replica has the log", func() bool {
		got, err := next.sql("postgres", fmt.Sprintf("SELECT pg_last_wal_replay_lsn() >= '%s'", end))
		return err == nil && got == "t"
	})
	next.mustSQL("postgres", "CHECKPOINT")
	if _, err := os.Stat(filepath.Join(next.pgdata(), "pg_wal", begin)); err != nil {
		t.Errorf("the replica does not keep the log that another one lacks: %v", err)
	}
	old.halt()
	if got := c.awaitSuccessor(t, old); got != next {
		t.Fatalf("%s leads", got.name)
	}
	missing.start()
	old.start()
	c.rejoined(t)
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("the replica was cloned: %v", err)
	}
	// Nothing is kept for ever.
	for _, pair := range [][2]*host{{old, missing}, {missing, old}, {old, next}} {
		eventually(t, 20*time.Second, pair[0].name+" releases log of "+pair[1].name, slot(pair[0], pair[1],
			fmt.Sprintf("restart_lsn > '%s'", end)))
	}
}
