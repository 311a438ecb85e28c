package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/postgres"
)

// ReserveTimeline has the next promotion begin no timeline before t: PostgreSQL takes the one after the newest that it
// has a history of. Two instances that were promoted from the same timeline at different times would otherwise write
// different logs under one name. after is the timeline that the data is on.
func (v Volume) ReserveTimeline(after, t postgres.Timeline) error {
	for between := after + 1; between < t; between++ {
		path := filepath.Join(v.PGData(), "pg_wal", between.HistoryFile())
		if _, err := os.Lstat(path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// A replica that reads it finds that the timeline left its own long ago, and does not follow it.
		if err := WriteFile(path, []byte("1\t0/0\treserved, never written\n")); err != nil {
			return err
		}
	}
	return nil
}

// How long a promotion is left alone while the log that it has to apply makes no progress, before the sessions of
// clients end: their queries may stand in its way for as long as max_standby_streaming_delay.
const promotionPatience = 200 * time.Millisecond

// Promote makes a replica's postmaster take writes, and then the wanted slots, without which the others would not stream
// from it. It returns what the server is then. All of the log that it has is applied before.
func (p *Process) Promote(ctx context.Context, slots []string) (Observation, error) {
	conn, err := p.server.Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return Observation{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// It need not survive a crash.
	if err := os.WriteFile(filepath.Join(p.server.Volume.PGData(), "promote"), nil, 0o600); err != nil {
		return Observation{}, err
	}
	if err := p.signal(unix.SIGUSR1); err != nil {
		return Observation{}, err
	}
	tick := time.NewTicker(polling)
	defer tick.Stop()
	replayed, since := postgres.LSN(0), time.Now()
	for {
		o, err := Observe(ctx, conn)
		if err != nil {
			return Observation{}, err
		}
		if !o.Recovering {
			return o, provisionSlots(ctx, conn, slots)
		}
		if o.Replayed != replayed {
			replayed, since = o.Replayed, time.Now()
		} else if time.Since(since) > promotionPatience {
			since = time.Now()
			if err := endClients(ctx, conn); err != nil {
				return Observation{}, err
			}
		}
		select {
		case <-tick.C:
		case <-p.done:
			return Observation{}, errors.New(p.Ending())
		case <-ctx.Done():
			return Observation{}, fmt.Errorf("the promotion does not come to its end: %w", ctx.Err())
		}
	}
}

// endClientsQuery ends the sessions of clients, but for the agent's: the name of those alone is anybody's.
const endClientsQuery = `SELECT pg_terminate_backend(pid) FROM pg_stat_get_activity(NULL) WHERE backend_type = 'client backend'
	AND (application_name <> current_setting('application_name') OR pg_get_userbyid(usesysid) <> session_user)`

func endClients(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, endClientsQuery)
	return err
}

// EndBlockers ends the sessions of clients where what a replica has to apply waits for one of them. Before it is applied,
// the replica asks nobody for more.
func EndBlockers(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, endClientsQuery+` AND EXISTS (SELECT FROM pg_stat_get_activity(NULL) AS s WHERE s.backend_type = 'startup'
		AND (s.wait_event_type IN ('Lock', 'BufferPin') OR s.wait_event LIKE 'RecoveryConflict%'))`)
	return err
}
