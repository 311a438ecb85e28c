package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/acme/pg-operator/test/chaos/history"
)

// slots are how many lists, and how many registers, are in use at a time; one is used for perSlot writes, so that
// lists stay short. generations are how often a new one follows.
const (
	slots       = 4
	perSlot     = 200
	generations = 200
)

// seen tells where a statement was run: the file of the log, whose name begins with the timeline, and the address. On
// a replica there is no such file.
const seen = `case when pg_is_in_recovery() then '' else pg_walfile_name(pg_current_wal_insert_lsn()) end, host(inet_server_addr())`

const (
	appendSQL   = `update chaos_lists set items = items || $2::bigint where key = $1 returning items, ` + seen
	readListSQL = `select items, ` + seen + ` from chaos_lists where key = $1`
	swapSQL     = `update chaos_registers set before = value, value = $2 where key = $1 returning before, ` + seen
	readSQL     = `select value, ` + seen + ` from chaos_registers where key = $1`
)

// prepare makes the tables with all their rows, which the clients only update. They are made anew.
func (l *Load) prepare(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, fmt.Sprintf(`drop table if exists chaos_lists, chaos_registers;
		create table chaos_lists (key int primary key, items bigint[] not null default '{}');
		create table chaos_registers (key int primary key, value bigint not null default 0, before bigint not null default 0);
		insert into chaos_lists select generate_series(0, %[1]d);
		insert into chaos_registers select generate_series(0, %[1]d);`, slots*generations-1))
	return err
}

// choose says what to do next.
func (l *Load) choose(random *rand.Rand) history.Operation {
	slot := random.IntN(slots)
	list, register := key(slot, l.lists[slot].Load()), key(slot, l.swaps[slot].Load())
	switch dice := random.IntN(100); {
	case dice < 40:
		l.lists[slot].Add(1)
		return history.Operation{Kind: history.Append, Keys: []int{list}, Value: l.values.Add(1)}
	case dice < 50:
		other := (slot + 1 + random.IntN(slots-1)) % slots
		l.lists[slot].Add(1)
		keys := []int{list, key(other, l.lists[other].Add(1))}
		slices.Sort(keys) // the order of the locks
		return history.Operation{Kind: history.Append, Keys: keys, Value: l.values.Add(1)}
	case dice < 75:
		l.swaps[slot].Add(1)
		return history.Operation{Kind: history.Swap, Keys: []int{register}, Value: l.values.Add(1)}
	case dice < 90:
		return history.Operation{Kind: history.ReadList, Keys: []int{list}}
	default:
		return history.Operation{Kind: history.ReadRegister, Keys: []int{register}}
	}
}

func key(slot int, used int64) int {
	return slot + slots*int(min(used/perSlot, generations-1))
}

// session is a connection of a client.
type session struct {
	conn *pgx.Conn
	// doubtful: the server warned that a commit may not be where it should be.
	doubtful bool
}

// Careful is the same configuration for one connection that never asks the server to cancel anything: a commit that
// waits for its replicas would be ended by that, and seen by others. doubt is called when the server warns that a
// commit may not be where it should be: it is no acknowledgement then.
func Careful(config *pgx.ConnConfig, doubt func()) *pgx.ConnConfig {
	config = config.Copy()
	dial, dialled := config.DialFunc, false
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialled {
			return nil, errors.New("a second connection is to cancel what the first one does")
		}
		dialled = true
		return dial(ctx, network, address)
	}
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		// "canceling wait for synchronous replication", and "... and terminating connection".
		if strings.Contains(notice.Message, "synchronous replication") {
			doubt()
		}
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config
}

func connect(ctx context.Context, config *pgx.ConnConfig) (s *session, err error) {
	s = &session{}
	s.conn, err = pgx.ConnectConfig(ctx, Careful(config, func() { s.doubtful = true }))
	return s, err
}

func (s *session) close(ctx context.Context) {
	if s == nil || s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 200*time.Millisecond)
	defer cancel()
	_ = s.conn.Close(ctx) // the server notices the end of the connection anyway
}

// do runs the operation and fills in what came of it.
func (s *session) do(ctx context.Context, o *history.Operation) {
	o.Lists = map[int][]int64{}
	var err error
	committing := true
	switch {
	case o.Kind == history.Append && len(o.Keys) > 1:
		committing, err = s.appendAll(ctx, o)
	case o.Kind == history.Append:
		err = s.list(ctx, o, o.Keys[0], appendSQL, o.Keys[0], o.Value)
	case o.Kind == history.ReadList:
		err = s.list(ctx, o, o.Keys[0], readListSQL, o.Keys[0])
	case o.Kind == history.Swap:
		err = s.row(ctx, o, &o.Register, swapSQL, o.Keys[0], o.Value)
	default:
		err = s.row(ctx, o, &o.Register, readSQL, o.Keys[0])
	}
	o.Outcome = history.Acknowledged
	switch {
	case err != nil:
		o.Outcome, o.Error = outcome(err, committing), err.Error()
	case s.doubtful:
		o.Outcome, o.Error = history.Unknown, "committed with a warning about its replicas"
	}
}

// appendAll appends to several lists in one transaction; committing tells how far it came.
func (s *session) appendAll(ctx context.Context, o *history.Operation) (committing bool, err error) {
	if _, err = s.conn.Exec(ctx, "begin"); err != nil {
		return false, err
	}
	for _, key := range o.Keys {
		if err = s.list(ctx, o, key, appendSQL, key, o.Value); err != nil {
			return false, err
		}
	}
	tag, err := s.conn.Exec(ctx, "commit")
	if err == nil && tag.String() != "COMMIT" {
		return false, errors.New("the transaction was rolled back: " + tag.String())
	}
	return true, err
}

func (s *session) list(ctx context.Context, o *history.Operation, key int, sql string, args ...any) error {
	var items []int64
	err := s.row(ctx, o, &items, sql, args...)
	if err == nil {
		o.Lists[key] = items
	}
	return err
}

func (s *session) row(ctx context.Context, o *history.Operation, into any, sql string, args ...any) error {
	var file string
	if err := s.conn.QueryRow(ctx, sql, args...).Scan(into, &file, &o.Server); err != nil {
		return err
	}
	o.Timeline = Timeline(file)
	return nil
}

// Timeline is that of a file of the log; 0 if there is none.
func Timeline(file string) uint32 {
	if len(file) < 8 {
		return 0
	}
	timeline, err := strconv.ParseUint(file[:8], 16, 32)
	if err != nil {
		return 0
	}
	return uint32(timeline)
}

// outcome tells what an error says. Before the commit nothing is done. Then an ERROR says so; a FATAL, or no answer,
// may come from a server that was ended while the commit waited for its replicas.
func outcome(err error, committing bool) history.Outcome {
	var refusal *pgconn.PgError
	switch {
	case !committing, pgconn.SafeToRetry(err):
		return history.Failed
	case errors.As(err, &refusal) && refusal.SeverityUnlocalized == "ERROR":
		return history.Failed
	default:
		return history.Unknown
	}
}
