package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres opens sessions with what config says.
func Postgres(config *pgx.ConnConfig) Connect {
	return func(ctx context.Context) (Session, error) {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		return session{conn}, nil
	}
}

type session struct{ conn *pgx.Conn }

// Prepare implements Session.
func (s session) Prepare(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, "create table if not exists ledger (id bigint primary key, written timestamptz not null default now())")
	return err
}

// Insert implements Session.
func (s session) Insert(ctx context.Context, id int64) error {
	_, err := s.conn.Exec(ctx, "insert into ledger (id) values ($1)", id)
	return err
}

// IDs implements Session.
func (s session) IDs(ctx context.Context) ([]int64, error) {
	rows, err := s.conn.Query(ctx, "select id from ledger order by id")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Close implements Session.
func (s session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // the server notices the end of the connection anyway
}
