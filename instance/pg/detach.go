package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/postgres"
)

// autoConf is the file of ALTER SYSTEM. PostgreSQL reads it last, so it is the agent's: the spec is where settings are
// changed, and what stood there would silently win. From version 17 on ALTER SYSTEM itself is refused.
const autoConf = "postgresql.auto.conf"

// Override writes the file that PostgreSQL reads after all others. While detached a replica follows nobody, whatever
// the others say.
func (s Server) Override(detached bool) error {
	content := "# Settings are changed in the PostgresCluster's spec.parameters.\n"
	if detached {
		content += "primary_conninfo = ''\n"
	}
	return WriteFile(filepath.Join(s.Volume.PGData(), autoConf), []byte(content))
}

// Log is how far a replica's log goes.
type Log struct {
	// Timeline and Received are the end of what is on its disk, Replayed is how much of that is applied.
	Timeline           postgres.Timeline
	Received, Replayed postgres.LSN
}

// ErrUnread tells that a replica has not read all of its log yet, and so does not know where it ends.
var ErrUnread = errors.New("its PostgreSQL has not read all of its log yet")

// How long a receiver may take to end by itself, and how often the server is looked at meanwhile.
const (
	receiverPatience = 300 * time.Millisecond
	receiverPolling  = 5 * time.Millisecond
)

// Detached waits until a replica that was told to follow nobody (Override, and this reloads it) receives nothing any
// more, and returns where its log ends then. It fails if that is not so before ctx ends.
func (p *Process) Detached(ctx context.Context) (Log, error) {
	conn, err := p.reload(ctx)
	if err != nil {
		return Log{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err = awaitSilence(ctx, conn); err != nil {
		return Log{}, err
	}
	return p.server.log(ctx, conn)
}

// Log is where a replica's log ends, as far as it received it by now; ErrUnread if it cannot tell.
func (p *Process) Log(ctx context.Context) (Log, error) {
	conn, err := p.server.Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return Log{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return p.server.log(ctx, conn)
}

// awaitSilence waits until no process receives log. The recovering process was told by the reload; it starts no other
// receiver, but one that it had just asked for may appear once: so two looks have to agree.
func awaitSilence(ctx context.Context, conn *pgx.Conn) error {
	begun := time.Now()
	tick := time.NewTicker(receiverPolling)
	defer tick.Stop()
	for silent := 0; silent < 2; {
		pid, err := receiver(ctx, conn)
		if err != nil {
			return err
		}
		if silent++; pid != 0 {
			silent = 0
		}
		if pid != 0 && time.Since(begun) > receiverPatience {
			// The process that should end it waits for something, such as a query that is in the way.
			if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("cannot end the process %d that receives log: %w", pid, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the process that receives log does not end: %w", ctx.Err())
		}
	}
	return nil
}

// receiver is the process that receives log, or begins to; 0 if there is none.
func receiver(ctx context.Context, conn *pgx.Conn) (pid int, err error) {
	err = conn.QueryRow(ctx, `SELECT coalesce(max(pid), 0) FROM (
		SELECT a.pid FROM pg_stat_get_activity(NULL) AS a WHERE a.backend_type = 'walreceiver'
		UNION ALL SELECT r.pid FROM pg_stat_get_wal_receiver() AS r WHERE r.pid IS NOT NULL) AS receivers`).Scan(&pid)
	return pid, err
}

// What a replica received is counted from when it first asked for log, which it does once it has read all it has; then
// the position may lie behind what it has replayed. One that has nobody to ask waits.
const logQuery = `
SELECT pg_is_in_recovery(), i.bytes_per_wal_segment, greatest(c.timeline_id, m.min_recovery_end_timeline),
       greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), '0/0')::text, coalesce(pg_last_wal_replay_lsn(), '0/0')::text,
       pg_last_wal_receive_lsn() IS NOT NULL OR EXISTS (SELECT FROM pg_stat_get_activity(NULL) AS a
         WHERE a.backend_type = 'startup' AND a.wait_event = 'RecoveryRetrieveRetryInterval')
FROM pg_control_init() AS i, pg_control_checkpoint() AS c, pg_control_recovery() AS m`

// unreadLooks is how often a replica is asked that has nobody to ask for log: now and then it looks for more of its own.
const unreadLooks = 5

func (s Server) log(ctx context.Context, conn *pgx.Conn) (Log, error) {
	tick := time.NewTicker(receiverPolling)
	defer tick.Stop()
	for looks := 1; ; looks++ {
		l, err := s.logNow(ctx, conn)
		if !errors.Is(err, ErrUnread) || looks == unreadLooks {
			return l, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Log{}, ctx.Err()
		}
	}
}

func (s Server) logNow(ctx context.Context, conn *pgx.Conn) (Log, error) {
	var recovering, read bool
	var segmentSize, timeline int64
	var received, replayed string
	err := conn.QueryRow(ctx, logQuery).Scan(&recovering, &segmentSize, &timeline, &received, &replayed, &read)
	switch {
	case err != nil:
		return Log{}, err
	case !recovering:
		return Log{}, errors.New("its PostgreSQL is no replica")
	case !read:
		return Log{}, ErrUnread
	}
	l := Log{Timeline: postgres.Timeline(timeline)}
	if l.Received, err = postgres.ParseLSN(received); err != nil {
		return Log{}, err
	}
	if l.Replayed, err = postgres.ParseLSN(replayed); err != nil {
		return Log{}, err
	}
	newest, err := s.Volume.newestTimeline(l.Received, uint64(segmentSize))
	l.Timeline = max(l.Timeline, newest)
	return l, err
}

// newestTimeline is the newest timeline that has a file for the log before a position. The control file learns of a
// timeline only some time after log of it was received.
func (v Volume) newestTimeline(end postgres.LSN, segmentSize uint64) (newest postgres.Timeline, err error) {
	if end == 0 || segmentSize == 0 {
		return 0, nil
	}
	files, err := os.ReadDir(filepath.Join(v.PGData(), "pg_wal"))
	if err != nil {
		return 0, err
	}
	suffix := postgres.SegmentFile(0, end-1, segmentSize)[8:]
	for _, file := range files {
		if t, err := postgres.TimelineOfFile(file.Name()); err == nil && strings.HasSuffix(file.Name(), suffix) {
			newest = max(newest, t)
		}
	}
	return newest, nil
}
