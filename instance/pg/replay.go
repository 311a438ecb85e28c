package pg

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/postgres"
)

// Replay is how a replica gets on with its primary's log.
type Replay struct {
	// Written is how far the primary had written the log when it was last heard of.
	Written, Received, Replayed postgres.LSN
	// Startup is the process that replays, 0 if there is none. Idle: it waits for more log. Hold is what keeps it from
	// replaying, because somebody wanted that, and what to do; empty if nothing does.
	Startup int
	Idle    bool
	Hold    string
	// Receiver is the process that receives, 0 if there is none. Heard is different after each message of the primary. If
	// there is none for Timeout, 0 for ever, the receiver is to end.
	Receiver int
	Heard    string
	Timeout  time.Duration
}

// Names of wait events differ between versions of PostgreSQL, those of their types hardly: a process that replays waits
// for locks and pins that queries have, and is idle in activities and timeouts.
const replayQuery = `
SELECT greatest(r.latest_end_lsn, r.flushed_lsn, pg_last_wal_receive_lsn(), '0/0')::text,
       coalesce(r.flushed_lsn, pg_last_wal_receive_lsn(), '0/0')::text, coalesce(pg_last_wal_replay_lsn(), '0/0')::text,
       coalesce(s.pid, 0), coalesce(s.wait_event_type IN ('Activity', 'Timeout'), false),
       CASE WHEN s.wait_event = 'RecoveryPause' THEN 'replay is paused; SELECT pg_wal_replay_resume() lets it go on'
            WHEN s.wait_event = 'RecoveryApplyDelay' THEN 'recovery_min_apply_delay has it wait'
            WHEN s.wait_event_type IN ('Lock', 'BufferPin', 'Buffer') OR s.wait_event LIKE 'RecoveryConflict%'
            THEN 'queries here stand in its way, for as long as max_standby_streaming_delay lets them' ELSE '' END,
       coalesce(r.pid, 0), coalesce(r.last_msg_receipt_time::text, ''),
       extract(epoch FROM current_setting('wal_receiver_timeout')::interval)::float8
FROM (SELECT) AS one LEFT JOIN pg_stat_get_wal_receiver() AS r ON r.pid IS NOT NULL
     LEFT JOIN (SELECT pid, wait_event_type, wait_event FROM pg_stat_get_activity(NULL) WHERE backend_type = 'startup') AS s ON true`

// ObserveReplay asks a replica how its replay does.
func ObserveReplay(ctx context.Context, conn *pgx.Conn) (Replay, error) {
	var r Replay
	var written, received, replayed string
	var timeout float64
	err := conn.QueryRow(ctx, replayQuery).Scan(&written, &received, &replayed, &r.Startup, &r.Idle, &r.Hold, &r.Receiver, &r.Heard, &timeout)
	if err != nil {
		return Replay{}, err
	}
	r.Timeout = time.Duration(timeout * float64(time.Second))
	for _, position := range []struct {
		text string
		lsn  *postgres.LSN
	}{{written, &r.Written}, {received, &r.Received}, {replayed, &r.Replayed}} {
		if *position.lsn, err = postgres.ParseLSN(position.text); err != nil {
			return Replay{}, err
		}
	}
	return r, nil
}

// Work is how much processor time a process has taken, in the kernel's ticks; 0 if it is gone.
func Work(pid int) int64 {
	const userTime, systemTime = 11, 12
	fields := statFields(pid)
	if len(fields) <= systemTime {
		return 0
	}
	user, errUser := strconv.ParseInt(fields[userTime], 10, 64)
	system, errSystem := strconv.ParseInt(fields[systemTime], 10, 64)
	if errors.Join(errUser, errSystem) != nil {
		return 0
	}
	return user + system
}
