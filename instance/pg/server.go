package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Server is PostgreSQL on a volume: its process, from start to end.
type Server struct {
	Volume   Volume
	Programs Programs
	// RunDir is where its Unix socket is, Port its port; Listen its addresses.
	RunDir string
	Port   int32
	Listen string
	// Instance is its name.
	Instance string
	// TLS is its certificate.
	TLS Keys
	// Log is where its log goes.
	Log io.Writer
}

// Process is a postmaster.
type Process struct {
	server Server
	cmd    *exec.Cmd
	tail   *logTail
	done   chan struct{}
	// ending is why it ended, readable once done is closed.
	ending string
}

// polling is how often files and processes are looked at while something is about to happen.
const polling = 20 * time.Millisecond

// Start starts the postmaster, which outlives ctx. What is left of an earlier one, which died without its children, is killed first.
func (s Server) Start(ctx context.Context) (*Process, error) {
	if err := s.clear(ctx); err != nil {
		return nil, err
	}
	// The kubelet may have opened the volume to its group, which PostgreSQL refuses.
	if err := os.Chmod(s.Volume.PGData(), 0o700); err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &Process{server: s, tail: &logTail{}, done: make(chan struct{})}
	p.cmd = s.Programs.command(context.WithoutCancel(ctx), "postgres", "-D", s.Volume.PGData())
	p.cmd.Stdout, p.cmd.Stderr = write, write
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	err = children.start(p.cmd)
	if closeErr := write.Close(); err != nil || closeErr != nil {
		return nil, errors.Join(err, closeErr, read.Close())
	}
	copied := make(chan struct{})
	go func() {
		p.tail.copy(read, s.Log)
		_ = read.Close()
		close(copied)
	}()
	go p.wait(context.WithoutCancel(ctx), copied)
	return p, nil
}

// wait notes how the postmaster ended. What is left of it is killed at once: it may go on for a while, and keeps the pipe
// open, in which there may be last words.
func (p *Process) wait(ctx context.Context, copied <-chan struct{}) {
	err := children.wait(p.cmd)
	err = errors.Join(err, p.server.Clear(ctx))
	select {
	case <-copied:
	case <-time.After(200 * time.Millisecond):
	}
	p.ending = p.tail.lastFatal()
	if p.ending == "" && err != nil {
		p.ending = err.Error()
	}
	close(p.done)
}

// Done is closed when the postmaster has ended; Ending then says why.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ending says why the postmaster ended.
func (p *Process) Ending() string {
	<-p.done
	if p.ending == "" {
		return "PostgreSQL stopped"
	}
	return "PostgreSQL stopped: " + p.ending
}

// Ahead tells whether the WAL receiver waits for a primary that has less log than it has.
func (p *Process) Ahead() bool { return p.tail.receiverAhead() }

// ReceiverTrouble is the last reason for which a replica could not follow.
func (p *Process) ReceiverTrouble() string { return p.tail.lastReceiver() }

// Pid is the postmaster's process number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Clear kills what is left of a postmaster that ended: a session may go on a while, and acknowledge what it commits. It
// returns when all is gone.
func (p *Process) Clear(ctx context.Context) error { return p.server.Clear(ctx) }

// Ready tells whether the postmaster accepts connections, by what it writes into its lock file.
func (p *Process) Ready() bool {
	content, err := os.ReadFile(filepath.Join(p.server.Volume.PGData(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) < 8 || strings.TrimSpace(lines[0]) != fmt.Sprint(p.cmd.Process.Pid) {
		return false
	}
	return slices.Contains([]string{"ready", "standby"}, strings.TrimSpace(lines[7]))
}

// Reload makes PostgreSQL read its configuration and certificates again.
func (p *Process) Reload() error { return p.signal(unix.SIGHUP) }

// Stop ends PostgreSQL in the fast way: sessions end, everything is written, replicas get all of the log. When ctx
// ends before that, PostgreSQL is fenced.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.signal(unix.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.server.killRest(context.WithoutCancel(ctx))
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Fence(ctx))
	}
}

// fencing bounds how long PostgreSQL may take to end itself when it is fenced.
const fencing = 2 * time.Second

// Fence ends PostgreSQL at once: first by its own immediate shutdown, then by killing whatever is left. The end of ctx
// does not keep it from that.
func (p *Process) Fence(ctx context.Context) error {
	err := p.signal(unix.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(fencing):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing)
	defer cancel()
	return errors.Join(err, p.server.killRest(ctx))
}

// Kill ends PostgreSQL that listens to nobody any more.
func (p *Process) Kill(ctx context.Context) error {
	if err := p.server.Clear(ctx); err != nil {
		return err
	}
	<-p.done
	return nil
}

func (p *Process) signal(s unix.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Clear kills what runs of PostgreSQL, and returns when it is gone.
func (s Server) Clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing)
	defer cancel()
	return s.killRest(ctx)
}

// killRest kills every process of PostgreSQL that is left, and returns when they are gone.
func (s Server) killRest(ctx context.Context) error {
	tick := time.NewTicker(polling)
	defer tick.Stop()
	for {
		pids, err := KillWorking(s.Volume.PGData())
		if len(pids) == 0 || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("processes %v of PostgreSQL do not end: %w", pids, ctx.Err())
		}
	}
}

// clear makes way for a new postmaster: nothing runs on the volume, which the agent has locked, so lock files are
// left over. In a container their process numbers soon belong to others, and PostgreSQL would refuse to start.
func (s Server) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fencing)
	defer cancel()
	if err := s.killRest(ctx); err != nil {
		return err
	}
	return errors.Join(
		removeIfThere(filepath.Join(s.Volume.PGData(), "postmaster.pid")),
		removeIfThere(s.socket()), removeIfThere(s.socket()+".lock"),
	)
}

func (s Server) socket() string { return filepath.Join(s.RunDir, fmt.Sprintf(".s.PGSQL.%d", s.Port)) }
