package pg

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// Who has not said yet who he is takes a place, too, also one that is reserved. Anybody can take all, and keep them for
// as long as authentication_timeout; then neither votes nor promotions would find one.
const (
	// fullPatience is how long the agent tries to get a place for itself, fullPolling how often.
	fullPatience = time.Second
	fullPolling  = 5 * time.Millisecond
	// strangerPatience is how long nobody is sent away for the agent.
	strangerPatience = 100 * time.Millisecond
	// strangerAge is how long a client may take to log in when there is no place left.
	strangerAge = 500 * time.Millisecond
)

// connect opens a session, and makes a place for it if there is none.
func (s Server) connect(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, err error) {
	begun := time.Now()
	err = whileFull(ctx, fullPatience, fullPolling, func() (err error) {
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil && time.Since(begun) > strangerPatience {
			endStrangers(s.Volume.PGData())
		}
		return err
	})
	return conn, err
}

// endStrangers ends processes of PostgreSQL whose clients have not logged in within strangerAge. Their titles tell which
// those are: before a client has said whom it is, its process has the postmaster's.
func endStrangers(dir string) {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return
	}
	found, titles := workers(dir), map[int]string{}
	for _, p := range found {
		if title, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cmdline")); err == nil {
			titles[p.pid] = string(bytes.TrimRight(title, "\x00"))
		}
	}
	for _, p := range found {
		title := titles[p.pid]
		stranger := title != "" && title == titles[p.parent] || strings.HasSuffix(title, " authentication")
		if stranger && time.Duration(now.Nano())-p.started > strangerAge {
			_ = unix.Kill(p.pid, unix.SIGTERM) // It may have ended.
		}
	}
}
