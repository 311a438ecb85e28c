// Package pg drives PostgreSQL on one volume: its programs, data directory,
// configuration, process and sessions. It decides nothing.
package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/postgres"
)

// debianPrograms is where Debian's packages put programs, which need not be on PATH.
const debianPrograms = "/usr/lib/postgresql/*/bin"

// ErrNoPrograms tells that the image has no PostgreSQL.
var ErrNoPrograms = errors.New("the image has no PostgreSQL: there is no program postgres on PATH, nor under /usr/lib/postgresql; " +
	"use an image such as docker.io/library/postgres")

// Programs are PostgreSQL's programs.
type Programs struct {
	// Dir they are in.
	Dir string
	// Version of them.
	Version postgres.ServerVersion
}

// FindPrograms looks for PostgreSQL on PATH and where Debian puts it, and prefers the wanted major version.
func FindPrograms(ctx context.Context, major string) (Programs, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	debian, err := filepath.Glob(debianPrograms)
	if err != nil {
		return Programs{}, err
	}
	slices.Reverse(debian)
	var found []Programs
	var errs []error
	for _, dir := range append(dirs, debian...) {
		if !hasPrograms(dir) {
			continue
		}
		p, err := programsIn(ctx, dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p.Version.Major == major {
			return p, nil
		}
		found = append(found, p)
	}
	switch {
	case len(found) > 0:
		return found[0], nil
	case len(errs) > 0:
		return Programs{}, errors.Join(errs...)
	}
	return Programs{}, ErrNoPrograms
}

// hasPrograms tells whether a directory has all programs and not, say, a link to only one.
func hasPrograms(dir string) bool {
	for _, name := range []string{"postgres", "initdb", "pg_basebackup", "pg_controldata", "pg_rewind"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func programsIn(ctx context.Context, dir string) (Programs, error) {
	p := Programs{Dir: dir}
	out, err := p.output(ctx, "postgres", "--version")
	if err != nil {
		return Programs{}, err
	}
	p.Version, err = postgres.ParseServerVersion(string(out))
	return p, err
}

// command prepares one of the programs. Its environment has no secrets, and messages come in English.
func (p Programs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.Dir, name), args...)
	cmd.Env = []string{"PATH=" + p.Dir + ":/usr/bin:/bin", "LC_ALL=C", "HOME=/nonexistent", "PGSSLCRL=", "PGCONNECT_TIMEOUT=10"}
	cmd.Dir = "/"
	// A program that is ended may have children that keep its output open.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// output runs a program and returns what it prints; the error has what it complains of.
func (p Programs) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd := p.command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := children.run(cmd); err != nil {
		return out.Bytes(), &ProgramError{Program: name, Output: complaint.String(), Err: err}
	}
	return out.Bytes(), nil
}

// errSilent tells that a program was ended because it went on without a sign of progress.
var errSilent = errors.New("no progress")

// outputWhileTalking runs a program that tells of its progress as it complains, and ends it when it has not said a word
// for as long as silence.
func (p Programs) outputWhileTalking(ctx context.Context, silence time.Duration, name string, args ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	talk := &talk{silence: silence, timer: time.AfterFunc(silence, func() { cancel(errSilent) })}
	defer talk.timer.Stop()
	cmd := p.command(ctx, name, args...)
	cmd.Stderr = talk
	// It ends together with its children, which would go on to write.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	err := children.run(cmd)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = fmt.Errorf("%w for %v, so it was ended", errSilent, silence)
		return &ProgramError{Program: name, Err: err}
	}
	if err != nil {
		return &ProgramError{Program: name, Output: string(talk.last), Err: err}
	}
	return nil
}

// talk is what a program says: only its end is kept, as progress is told for hours.
type talk struct {
	silence time.Duration
	timer   *time.Timer
	last    []byte
}

func (t *talk) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.timer.Reset(t.silence)
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-most):]
	return len(b), nil
}

// ProgramError is a program of PostgreSQL that failed.
type ProgramError struct {
	// Program that failed, Output what it complained of.
	Program, Output string
	// Err says how it ended.
	Err error
}

func (e *ProgramError) Error() string {
	if e.Output == "" {
		return fmt.Sprintf("%s: %v", e.Program, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Program, summary(e.Output))
}

func (e *ProgramError) Unwrap() error { return e.Err }
