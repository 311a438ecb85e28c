package process

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// Await waits until a probe of a process succeeds. It fails at once when the
// process ends, and after the limit with the probe's last error; either way it
// shows the end of the log.
func (t *Table) Await(ctx context.Context, name string, limit time.Duration, probe func(context.Context) error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.Exited(name):
			return fmt.Errorf("%s ended; the end of %s:\n%s", name, t.Log(name), Tail(t.Log(name), 15))
		case <-deadline.C:
			return fmt.Errorf("%s is not ready after %s: %w; the end of %s:\n%s", name, limit, err, t.Log(name), Tail(t.Log(name), 15))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Tail returns the last lines of a file, as far as its last 16 KiB hold them.
func Tail(file string, lines int) string {
	handle, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer handle.Close()
	const most = 16 << 10
	info, err := handle.Stat()
	if err != nil {
		return err.Error()
	}
	buffer := make([]byte, min(info.Size(), most))
	n, _ := handle.ReadAt(buffer, info.Size()-int64(len(buffer)))
	all := strings.Split(strings.TrimSpace(string(buffer[:n])), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
