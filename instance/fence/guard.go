package fence

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/instance/pg"
)

// A sentinel that ended is started again soon, then less often.
const (
	restart    = 50 * time.Millisecond
	restartMax = 2 * time.Second
	// settled is how long one lives before earlier failures are forgotten.
	settled = 10 * time.Second
)

// awake is how long ago a sentinel that works looked at most; it is busy for a while when it kills.
const awake = 4 * looking

// errAsleep tells that no sentinel watches.
var errAsleep = errors.New("the sentinel, which ends PostgreSQL when the agent cannot, does not run")

// Guard keeps a sentinel running, and tells it what to watch.
type Guard struct {
	*Page
	command []string
	log     logr.Logger
	problem error
}

// NewGuard makes a guard with a page. Command is the sentinel's program with its arguments. Where no page can be made no
// sentinel runs, and Awake says why.
func NewGuard(command []string, log logr.Logger) *Guard {
	page, err := New()
	if err != nil {
		page = &Page{words: &words{}}
	}
	return &Guard{Page: page, command: command, log: log, problem: err}
}

// Run keeps a sentinel running until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	if g.problem != nil {
		g.log.Error(g.problem, "Failed to start the sentinel")
		return
	}
	wait := restart
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begun := time.Now()
		err := pg.RunChild(g.prepare(ctx))
		g.looked.Store(0)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > settled {
			wait = restart
		}
		g.log.Info("The sentinel ended; starts another one", "reason", err, "after", wait.String())
		timer.Reset(wait)
		wait = min(2*wait, restartMax)
	}
}

// prepare makes a sentinel's command. It gets nothing but the page, no environment, and no processor time to speak of.
func (g *Guard) prepare(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.command[0], g.command[1:]...)
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{g.file}
	// Signals that a terminal sends to all of its processes are not for it.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	return cmd
}

// Awake fails if no sentinel has looked for a while.
func (g *Guard) Awake() error {
	if g.problem != nil {
		return g.problem
	}
	if looked := g.looked.Load(); looked == 0 || Now()-time.Duration(looked) > awake {
		return errAsleep
	}
	return nil
}
