package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/acme/pg-operator/postgres"
)

// pinned are settings of each of our sessions that no database or role may change under us: names mean PostgreSQL's
// own functions and operators, whatever a database's owner made, and nothing waits for ever.
var pinned = map[string]string{
	"search_path":                         "pg_catalog, pg_temp",
	"application_name":                    "pg-operator",
	"statement_timeout":                   "30s",
	"lock_timeout":                        "10s",
	"idle_in_transaction_session_timeout": "60s",
	"default_transaction_read_only":       "off",
	// A replica refuses serializable transactions.
	"default_transaction_isolation":  "read committed",
	"default_transaction_deferrable": "off",
	"synchronous_commit":             "local",
	"client_encoding":                "UTF8",
	"standard_conforming_strings":    "on",
	"role":                           "none",
	"bytea_output":                   "hex",
	// The watch of a server is idle between two looks.
	"idle_session_timeout": "0",
	// Nobody's library runs as the superuser, or keeps the agent from its own server by not being there.
	"session_preload_libraries": "",
	"local_preload_libraries":   "",
	// The verifier of a password is in a statement of ours, and belongs into no log and no statistics.
	"log_statement":                    "none",
	"log_min_duration_statement":       "-1",
	"log_min_duration_sample":          "-1",
	"log_transaction_sample_rate":      "0",
	"log_min_error_statement":          "panic",
	"pg_stat_statements.track_utility": "off",
}

// pinnedSince are settings that PostgreSQL has from a major version on; an older one refuses a session that names them.
var pinnedSince = map[string]map[string]string{
	// A trigger on logins that fails would keep the agent out.
	"17": {"transaction_timeout": "0", "event_triggers": "off"},
}

// pins are the pinned settings that PostgreSQL of a major version has; of an unknown one, those that all have.
func pins(major string) map[string]string {
	all := maps.Clone(pinned)
	for since, settings := range pinnedSince {
		if major != "" && postgres.CompareMajor(major, since) >= 0 {
			maps.Copy(all, settings)
		}
	}
	return all
}

// Connect opens a session of the superuser's through the Unix socket.
func (s Server) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(fmt.Sprintf("host='%s' port=%d user=%s sslmode=disable connect_timeout=5",
		strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s.RunDir), s.Port, postgres.RoleSuperuser))
	if err != nil {
		return nil, err
	}
	config.Database = database
	config.Password = ""
	maps.Copy(config.RuntimeParams, pins(s.Programs.Version.Major))
	config.ConnectTimeout = 5 * time.Second
	return s.connect(ctx, config)
}

// whileFull tries to connect again for a while as long as the server has no place for the session.
func whileFull(ctx context.Context, patience, polling time.Duration, connect func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(polling)
	defer tick.Stop()
	for {
		err := connect()
		if full, ok := errors.AsType[*pgconn.PgError](err); !ok || full.Code != "53300" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Observation is what a running server says of itself.
type Observation struct {
	// Recovering: it only takes reads.
	Recovering bool
	Timeline   postgres.Timeline
	// Written is a primary's flushed position; Received and Replayed are a replica's.
	Written, Received, Replayed postgres.LSN
	// Redo is from where on the server would apply its log if it crashed.
	Redo postgres.LSN
	// Receiver is the process that receives a replica's log, 0 if there is none. PostgreSQL says that it streams when it
	// only begins to negotiate; Heard tells that the primary has sent something.
	Receiver int
	Heard    bool
}

const observeQuery = `
SELECT pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_flush_lsn()) END,
       CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_flush_lsn()::text END,
       coalesce(r.flushed_lsn, pg_last_wal_receive_lsn(), '0/0')::text,
       coalesce(pg_last_wal_replay_lsn(), '0/0')::text, c.redo_lsn::text,
       CASE WHEN r.status = 'streaming' THEN r.pid ELSE 0 END,
       coalesce(r.last_msg_send_time <> r.last_msg_receipt_time, false),
       greatest(coalesce(r.received_tli, 0), c.timeline_id, coalesce(m.min_recovery_end_timeline, 0))
FROM pg_control_checkpoint() AS c CROSS JOIN pg_control_recovery() AS m LEFT JOIN pg_stat_get_wal_receiver() AS r ON r.pid IS NOT NULL`

// Observe asks a server how it does.
func Observe(ctx context.Context, conn *pgx.Conn) (Observation, error) {
	var o Observation
	var file, written, received, replayed, redo string
	var receiving int64
	err := conn.QueryRow(ctx, observeQuery).Scan(&o.Recovering, &file, &written, &received, &replayed, &redo,
		&o.Receiver, &o.Heard, &receiving)
	if err != nil {
		return Observation{}, err
	}
	for _, position := range []struct {
		text string
		lsn  *postgres.LSN
	}{{written, &o.Written}, {received, &o.Received}, {replayed, &o.Replayed}, {redo, &o.Redo}} {
		if *position.lsn, err = postgres.ParseLSN(position.text); err != nil {
			return Observation{}, err
		}
	}
	o.Timeline = postgres.Timeline(receiving)
	if file != "" {
		if o.Timeline, err = postgres.TimelineOfFile(file); err != nil {
			return Observation{}, err
		}
	}
	return o, nil
}

// InForce says which settings a server refused or will only take at its next start.
type InForce struct {
	// Refused settings, each with the reason.
	Refused []string
	// PendingRestart names those that wait for a restart.
	PendingRestart []string
}

const inForceQuery = `
SELECT coalesce((SELECT array_agg(name ORDER BY name) FROM pg_settings WHERE pending_restart), '{}'),
       coalesce((SELECT array_agg(coalesce(name || ': ', '') || error ORDER BY name) FROM pg_show_all_file_settings()
                 WHERE error IS NOT NULL AND NOT applied
                   AND coalesce(lower(name), '') NOT IN (SELECT lower(name) FROM pg_settings WHERE pending_restart)), '{}')`

// ReloadAndCheck has the server read its configuration again and tells what came of it.
func (p *Process) ReloadAndCheck(ctx context.Context) (InForce, error) {
	conn, err := p.reload(ctx)
	if err != nil {
		return InForce{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return p.inForce(ctx, conn)
}

// reload returns when the server has read its files, and told its processes to do so, with a session that saw it.
func (p *Process) reload(ctx context.Context) (*pgx.Conn, error) {
	conn, before, err := p.loaded(ctx)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(conn.Close(ctx), p.Reload()); err != nil {
		return nil, err
	}
	// A new session has the postmaster's view, so it shows when the postmaster has read the files.
	tick := time.NewTicker(reloadPolling)
	defer tick.Stop()
	for {
		conn, loaded, err := p.loaded(ctx)
		if err != nil || loaded.After(before) {
			return conn, err
		}
		_ = conn.Close(ctx)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("PostgreSQL does not reload its configuration: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// reloadPolling is how often a server is asked whether it has read its files.
const reloadPolling = 5 * time.Millisecond

// loaded opens a session, and tells when the configuration was last read that it has.
func (p *Process) loaded(ctx context.Context) (conn *pgx.Conn, at time.Time, err error) {
	if conn, err = p.server.Connect(ctx, postgres.RoleSuperuser); err != nil {
		return nil, time.Time{}, err
	}
	if err = conn.QueryRow(ctx, "SELECT pg_conf_load_time()").Scan(&at); err != nil {
		return nil, time.Time{}, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, at, nil
}

// InForce tells what came of the configuration that was last read.
func (p *Process) InForce(ctx context.Context) (InForce, error) {
	conn, err := p.server.Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return InForce{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return p.inForce(ctx, conn)
}

func (p *Process) inForce(ctx context.Context, conn *pgx.Conn) (inForce InForce, err error) {
	var prefix string
	if err = conn.QueryRow(ctx, "SELECT current_setting('log_line_prefix')").Scan(&prefix); err != nil {
		return InForce{}, err
	}
	p.tail.know(prefix, strconv.Itoa(p.cmd.Process.Pid))
	err = conn.QueryRow(ctx, inForceQuery).Scan(&inForce.PendingRestart, &inForce.Refused)
	return inForce, err
}

// Checkpoint writes dirty pages, so that the shutdown after it is short.
func (s Server) Checkpoint(ctx context.Context) error {
	conn, err := s.Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, "CHECKPOINT")
	return err
}
