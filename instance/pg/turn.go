package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// turnSuffix ends the name of a session by which an instance tells that it is being cloned.
const turnSuffix = "-cloning"

// Turn is the right of one instance to be cloned while no other one is. It is a session on the primary, which the primary
// ends by itself soon after nothing is heard of it any more.
type Turn struct {
	conn *pgx.Conn
	life time.Duration
}

// Turn takes the turn. If it is another one's of the instances, that is returned instead. Two that ask at the same time
// may both be sent away, but never both get it: each looks at the others' sessions after its own can be seen. The turn
// ends by itself when it was not kept for life.
func (u Upstream) Turn(ctx context.Context, instances []string, life time.Duration) (turn *Turn, other string, err error) {
	conn, err := u.connect(ctx, map[string]string{
		"application_name":     u.Application + turnSuffix,
		"idle_session_timeout": fmt.Sprint(life.Milliseconds()),
		// The same for a machine that is gone.
		"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
	})
	if err != nil {
		return nil, "", fmt.Errorf("cannot ask the primary: %w", err)
	}
	others := []string{}
	for _, instance := range instances {
		if instance != u.Application {
			others = append(others, instance+turnSuffix)
		}
	}
	// Only the replication role's sessions count: others may call theirs what they like.
	err = conn.QueryRow(ctx, `SELECT coalesce(min(application_name), '') FROM pg_stat_activity
		WHERE usename = current_user AND application_name = ANY ($1)`, others).Scan(&other)
	if err != nil || other != "" {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, strings.TrimSuffix(other, turnSuffix), err
	}
	return &Turn{conn, life}, "", nil
}

// Keep keeps the turn until ctx ends, and then gives it back. One that is lost is not taken again: the clone that has
// begun goes on, and at worst a second one beside it.
func (t *Turn) Keep(ctx context.Context) {
	defer func() { _ = t.conn.Close(context.WithoutCancel(ctx)) }()
	tick := time.NewTicker(t.life / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := t.conn.Exec(ctx, "SELECT 1"); err != nil {
			return
		}
	}
}
