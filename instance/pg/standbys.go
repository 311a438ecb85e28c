package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/postgres"
)

// Standby is a replica as its primary sees it.
type Standby struct {
	// Instance is its name.
	Instance string
	// Streaming: it has caught up once, and gets what is written as it is written.
	Streaming bool
	// Counted: its walsender takes it for one of those that commits may wait for.
	Counted bool
	// Flushed is how much of the log it has on disk.
	Flushed postgres.LSN
}

// Standbys are the replicas that are connected to a primary. Only the replication role counts: others with the right
// to replicate could call themselves what they like. idle tells whether the checkpointer has nothing to do: commits
// begin to wait for standbys once it has read the configuration, which it does not while it is busy.
func Standbys(ctx context.Context, conn *pgx.Conn) (all []Standby, idle bool, err error) {
	err = conn.QueryRow(ctx, `SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'checkpointer'
		AND wait_event IN ('CheckpointerMain', 'CheckpointWriteDelay')`).Scan(&idle)
	if err != nil {
		return nil, false, err
	}
	rows, err := conn.Query(ctx, `SELECT application_name, state = 'streaming', sync_priority > 0, coalesce(flush_lsn, '0/0')::text
		FROM pg_stat_replication WHERE usename = $1 AND state IN ('streaming', 'catchup') ORDER BY application_name`,
		postgres.RoleReplication)
	if err != nil {
		return nil, false, err
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Standby, error) {
		var s Standby
		var flushed string
		scanErr := row.Scan(&s.Instance, &s.Streaming, &s.Counted, &flushed)
		if scanErr != nil {
			return Standby{}, scanErr
		}
		s.Flushed, scanErr = postgres.ParseLSN(flushed)
		return s, scanErr
	})
	return all, idle, err
}
