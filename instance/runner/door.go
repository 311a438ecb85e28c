package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/acme/pg-operator/postgres"
)

// A postmaster that hangs lets the sessions it has go on, but no new one in: only a new connection shows that.
const (
	// knockInterval is how often a new connection is tried, knockTimeout how long one may take: to fork and
	// authenticate takes milliseconds, and a busy machine has a thousand times as long.
	knockInterval = 3 * time.Second
	knockTimeout  = 2 * time.Second
	// closedAfter is how many attempts in a row fail before that is believed.
	closedAfter = 3
)

// door tells whether a server lets new sessions in. Its zero value has not tried yet.
type door struct {
	tried  time.Time
	misses int
	// last is why the last attempt failed.
	last error
}

// check tries a new connection if one is due, and fails while the server lets nobody in.
func (d *door) check(ctx context.Context, knock func(context.Context) error) error {
	if time.Since(d.tried) >= knockInterval {
		d.tried = time.Now()
		limited, cancel := context.WithTimeout(ctx, knockTimeout)
		err := knock(limited)
		cancel()
		var answer *pgconn.PgError
		if err == nil || errors.As(err, &answer) {
			// Also who is told that there are too many sessions was answered by a postmaster that works.
			d.misses, d.last = 0, nil
		} else {
			d.misses, d.last = d.misses+1, err
		}
	}
	if d.misses < closedAfter {
		return nil
	}
	return fmt.Errorf("it lets no new session in though earlier ones go on (attempts: %d): %w", d.misses, d.last)
}

// knock opens a session and closes it again.
func (w *serverWatch) knock(ctx context.Context) error {
	conn, err := w.runner.server().Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
