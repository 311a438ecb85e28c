package pg

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/postgres"
)

// config is for a session of the replication role's on the primary.
func (u Upstream) config() (*pgx.ConnConfig, error) {
	certificate, authority, err := u.Keys.Load()
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig("sslmode=disable connect_timeout=5")
	if err != nil {
		return nil, err
	}
	config.Host, config.Port = u.Host, uint16(u.Port)
	config.User, config.Database, config.Password = postgres.RoleReplication, postgres.RoleSuperuser, ""
	config.TLSConfig = &tls.Config{
		ServerName: u.Host, RootCAs: authority, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	}
	config.Fallbacks = nil
	if u.Address != "" {
		config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{u.Address}, nil }
	}
	config.DialFunc = (&net.Dialer{}).DialContext
	// As far as somebody who is no superuser may set them.
	for _, name := range []string{
		"search_path", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout",
		"default_transaction_read_only", "default_transaction_isolation", "default_transaction_deferrable", "client_encoding",
		"standard_conforming_strings", "bytea_output", "role", "local_preload_libraries",
	} {
		config.RuntimeParams[name] = pinned[name]
	}
	config.RuntimeParams["application_name"] = u.Application
	config.RuntimeParams["statement_timeout"] = "10s"
	return config, nil
}

// connect opens a session of the replication role's on the primary. It is one for replication, which can be asked as well
// but knows the simple protocol only: applications that have taken all of max_connections are not in its way. settings are
// more than what every session is pinned to.
func (u Upstream) connect(ctx context.Context, settings map[string]string) (*pgx.Conn, error) {
	config, err := u.config()
	if err != nil {
		return nil, err
	}
	maps.Copy(config.RuntimeParams, settings)
	config.RuntimeParams["replication"] = "database"
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, config)
}

// How long a rewind waits for a place among the primary's sessions, and how often it looks for one.
const (
	placePatience = 5 * time.Second
	placePolling  = 200 * time.Millisecond
)

// awaitPlace waits until the primary has a place for an ordinary session, such as pg_rewind's, or for a while.
func (u Upstream) awaitPlace(ctx context.Context) {
	config, err := u.config()
	if err != nil {
		return // pg_rewind says so.
	}
	_ = whileFull(ctx, placePatience, placePolling, func() error {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

// Source asks the primary what it can still offer data at position own, with log files of segmentSize bytes.
func (u Upstream) Source(ctx context.Context, own agent.Position, segmentSize uint64) (agent.Source, error) {
	conn, err := u.connect(ctx, nil)
	if err != nil {
		return agent.Source{}, fmt.Errorf("cannot ask the primary: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var source agent.Source
	var recovering bool
	var file, at string
	err = conn.QueryRow(ctx, `SELECT s.system_identifier::text, pg_is_in_recovery(),
			CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_flush_lsn()) END,
			CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_flush_lsn()::text END,
			coalesce((SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = $1), false)
		FROM pg_control_system() AS s`, u.Slot).
		Scan(&source.SystemID, &recovering, &file, &at, &source.SlotLost)
	if err != nil {
		return agent.Source{}, err
	}
	if recovering {
		return agent.Source{}, fmt.Errorf("%s is not a primary yet", u.Host)
	}
	if source.Timeline, err = postgres.TimelineOfFile(file); err != nil {
		return agent.Source{}, err
	}
	if source.At, err = postgres.ParseLSN(at); err != nil {
		return agent.Source{}, err
	}
	if source.History, err = history(ctx, conn, source.Timeline); err != nil {
		return agent.Source{}, err
	}
	source.HasLog, err = hasLog(ctx, conn, source, own, segmentSize)
	return source, err
}

// Identify is the identity of the primary's database. It fails if the primary does not answer, or is none.
func (u Upstream) Identify(ctx context.Context) (systemID string, err error) {
	conn, err := u.connect(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("cannot ask the primary: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var recovering bool
	err = conn.QueryRow(ctx, "SELECT system_identifier::text, pg_is_in_recovery() FROM pg_control_system()").Scan(&systemID, &recovering)
	if err == nil && recovering {
		err = fmt.Errorf("%s is not a primary yet", u.Host)
	}
	return systemID, err
}

// Settled tells whether the primary's control file knows the timeline that it writes on.
func (u Upstream) Settled(ctx context.Context) (bool, error) {
	conn, err := u.connect(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("cannot ask the primary: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var file string
	var known int64
	err = conn.QueryRow(ctx, "SELECT pg_walfile_name(pg_current_wal_flush_lsn()), timeline_id FROM pg_control_checkpoint()").
		Scan(&file, &known)
	if err != nil {
		return false, err
	}
	writes, err := postgres.TimelineOfFile(file)
	return writes == postgres.Timeline(known), err
}

func history(ctx context.Context, conn *pgx.Conn, t postgres.Timeline) ([]postgres.Fork, error) {
	if t == 1 {
		return nil, nil
	}
	var content []byte
	if err := conn.QueryRow(ctx, "SELECT pg_read_binary_file($1)", "pg_wal/"+t.HistoryFile()).Scan(&content); err != nil {
		return nil, err
	}
	return postgres.ParseHistory(string(content))
}

// hasLog tells whether the file with the position is there, under the timeline it was written on or a later one.
func hasLog(ctx context.Context, conn *pgx.Conn, source agent.Source, own agent.Position, segmentSize uint64) (bool, error) {
	if own.At/postgres.LSN(segmentSize) >= source.At/postgres.LSN(segmentSize) {
		return true, nil
	}
	timelines := []postgres.Timeline{source.Timeline}
	for _, fork := range source.History {
		timelines = append(timelines, fork.Parent)
	}
	for _, t := range timelines {
		var there bool
		file := "pg_wal/" + postgres.SegmentFile(t, own.At, segmentSize)
		if err := conn.QueryRow(ctx, "SELECT size IS NOT NULL FROM pg_stat_file($1, true)", file).Scan(&there); err != nil {
			return false, err
		}
		if there {
			return true, nil
		}
	}
	return false, nil
}
