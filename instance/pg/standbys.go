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
	// Flushed is how much of the log it has on disk, Replayed how much of that is applied.
	Flushed, Replayed postgres.LSN
}

// Standbys are the replicas that are connected to a primary. Only the replication role counts: others with the right
// to replicate could call themselves what they like. PostgreSQL would take their word for it that a commit is safe, so
// whoever calls himself like a replica that commits wait for is sent away. idle tells whether the checkpointer has nothing
// to do: commits begin to wait for standbys once it has read the configuration, which it does not while it is busy.
func Standbys(ctx context.Context, conn *pgx.Conn) (all []Standby, idle bool, err error) {
	err = conn.QueryRow(ctx, `SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'checkpointer'
		AND wait_event IN ('CheckpointerMain', 'CheckpointWriteDelay')`).Scan(&idle)
	if err != nil {
		return nil, false, err
	}
	rows, err := conn.Query(ctx, `SELECT application_name, state = 'streaming', sync_priority > 0, coalesce(flush_lsn, '0/0')::text,
			coalesce(replay_lsn, '0/0')::text, coalesce(usename = $1, false),
			sync_priority > 0 OR position('"' || lower(application_name) || '"' IN current_setting('synchronous_standby_names')) > 0, pid
		FROM pg_stat_replication WHERE state IN ('streaming', 'catchup') ORDER BY application_name`, postgres.RoleReplication)
	if err != nil {
		return nil, false, err
	}
	var s Standby
	var flushed, replayed string
	var ours, named bool
	var pid int
	var impostors []int
	_, err = pgx.ForEachRow(rows, []any{&s.Instance, &s.Streaming, &s.Counted, &flushed, &replayed, &ours, &named, &pid}, func() (err error) {
		if !ours {
			if named { // Also before it confirms anything: it only counts from then on.
				impostors = append(impostors, pid)
			}
			return nil
		}
		if s.Flushed, err = postgres.ParseLSN(flushed); err != nil {
			return err
		}
		s.Replayed, err = postgres.ParseLSN(replayed)
		all = append(all, s)
		return err
	})
	if err == nil && len(impostors) > 0 {
		_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid", impostors)
	}
	return all, idle, err
}
