package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/postgres"
)

// Volume is the data volume of an instance. PostgreSQL's data directory on it appears only when it is complete:
// it is made under another name, written to disk, and renamed.
type Volume struct {
	// Root of the volume.
	Root string
}

// PGData is the data directory.
func (v Volume) PGData() string { return filepath.Join(v.Root, "pgdata") }

// StateFile is where the agent keeps what it must know when the API server does not answer.
func (v Volume) StateFile() string { return filepath.Join(v.Root, "pg-operator.json") }

// unfinished is being made, ready waits to take the data directory's place, and old was there before.
func (v Volume) unfinished() string { return v.PGData() + ".new" }
func (v Volume) ready() string      { return v.PGData() + ".ready" }
func (v Volume) old() string        { return v.PGData() + ".old" }

// tornMarker exists while pg_rewind is at work.
func (v Volume) tornMarker() string { return filepath.Join(v.Root, "rewinding") }

func (v Volume) standbySignal() string { return filepath.Join(v.PGData(), "standby.signal") }

// Lock makes sure that no other agent works on the volume, such as that of a pod that was deleted by force but
// still runs. It holds until release is called or the process ends.
func (v Volume) Lock() (release func(), err error) {
	path := filepath.Join(v.Root, "pg-operator.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot use the data volume: %w; the volume must be writable for user %d", err, os.Getuid())
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another agent works on the data volume (%s: %w); waits for it to end", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Settle finishes or undoes what an earlier agent had begun.
func (v Volume) Settle() error {
	if err := os.RemoveAll(v.unfinished()); err != nil {
		return err
	}
	ready, err := exists(v.ready())
	if err != nil {
		return err
	}
	if ready {
		if err := v.replace(); err != nil {
			return err
		}
	}
	return os.RemoveAll(v.old())
}

// replace puts the ready data directory in the place of the present one.
func (v Volume) replace() error {
	present, err := exists(v.PGData())
	if err != nil {
		return err
	}
	if present {
		if err := os.RemoveAll(v.old()); err != nil {
			return err
		}
		if err := renameDurably(v.PGData(), v.old()); err != nil {
			return err
		}
	}
	if err := renameDurably(v.ready(), v.PGData()); err != nil {
		return err
	}
	if err := removeIfThere(v.tornMarker()); err != nil {
		return err
	}
	return os.RemoveAll(v.old())
}

// finish makes the unfinished data directory the data directory.
func (v Volume) finish() error {
	if err := syncTree(v.unfinished()); err != nil {
		return err
	}
	if err := renameDurably(v.unfinished(), v.ready()); err != nil {
		return err
	}
	return v.replace()
}

// Inspect tells what the volume holds.
func (v Volume) Inspect(ctx context.Context, programs Programs) (agent.Data, error) {
	data := agent.Data{Known: true}
	entries, err := os.ReadDir(v.PGData())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return data, nil
	}
	if err != nil {
		return agent.Data{}, err
	}
	major, err := os.ReadFile(filepath.Join(v.PGData(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		data.Problem = fmt.Sprintf("%s has files but no PG_VERSION, so it is not a data directory of PostgreSQL; "+
			"nothing was changed. Move the files away, or delete the volume claim to have the instance cloned", v.PGData())
		return data, nil
	}
	if err != nil {
		return agent.Data{}, err
	}
	data.Major = strings.TrimSpace(string(major))
	torn, err := exists(v.tornMarker())
	if err != nil {
		return agent.Data{}, err
	}
	replica, err := exists(v.standbySignal())
	if err != nil {
		return agent.Data{}, err
	}
	data.Data = lease.Data{Present: true, Replica: replica, Torn: torn}
	if data.Major != programs.Version.Major {
		return data, nil // Its control file may look different.
	}
	control, err := v.ControlData(ctx, programs)
	if killed(err) {
		return agent.Data{}, err
	}
	if err != nil {
		data.Problem = fmt.Sprintf("the data directory cannot be read: %v; restore a backup, "+
			"or delete the volume claim to have the instance cloned", err)
		return data, nil
	}
	data.SystemID, data.Timeline = control.SystemID, control.LastTimeline()
	return data, nil
}

// killed tells that a program was ended before it could answer, as by the sentinel, which ends all processes of an instance
// that was frozen. That says nothing about the data.
func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited()
}

// ControlData reads the control file.
func (v Volume) ControlData(ctx context.Context, programs Programs) (postgres.ControlData, error) {
	out, err := programs.output(ctx, "pg_controldata", "-D", v.PGData())
	if err != nil {
		return postgres.ControlData{}, err
	}
	return postgres.ParseControlData(string(out))
}
