package pg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/acme/pg-operator/postgres"
)

// Upstream is the primary as a replica connects to it.
type Upstream struct {
	// Host is its name, which its certificate has; Address its IP address, empty to ask DNS; Port that of PostgreSQL.
	Host, Address string
	Port          int32
	// Keys the replica shows.
	Keys Keys
	// Application is the replica's name on the primary, Slot its replication slot there.
	Application, Slot string
}

// conninfo is a connection string of libpq.
func (u Upstream) conninfo(database string) string {
	var b strings.Builder
	add := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s='%s' ", key, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value))
		}
	}
	add("host", u.Host)
	add("hostaddr", u.Address)
	add("port", fmt.Sprint(u.Port))
	add("user", postgres.RoleReplication)
	add("dbname", database)
	if database != "" {
		// pg_rewind guards itself against other settings of a database, but not against these.
		add("options", "-c local_preload_libraries= -c idle_session_timeout=0 -c role=none")
	}
	add("application_name", u.Application)
	add("sslmode", "verify-full")
	add("sslcert", u.Keys.Certificate())
	add("sslkey", u.Keys.Key())
	add("sslrootcert", u.Keys.Authority())
	// A primary that vanished is given up within seconds, not when TCP does.
	add("connect_timeout", "5")
	add("keepalives_idle", "5")
	add("keepalives_interval", "2")
	add("keepalives_count", "3")
	add("tcp_user_timeout", "10000")
	return strings.TrimSpace(b.String())
}

// cloneSilence is how long pg_basebackup may go without a byte of data: before the first one, the primary writes a
// checkpoint. A connection that is dead ends much sooner.
const cloneSilence = 10 * time.Minute

// Clone copies the primary's data, in place of what the volume has. That stays until the copy is complete, if there
// is room for both.
func (v Volume) Clone(ctx context.Context, programs Programs, primary Upstream) error {
	if err := os.RemoveAll(v.unfinished()); err != nil {
		return err
	}
	if err := v.makeRoom(); err != nil {
		return err
	}
	// Under the replica's own name it would count as a synchronous one, and acknowledge what it has not.
	primary.Application += "-clone"
	err := programs.outputWhileTalking(ctx, cloneSilence, "pg_basebackup", "--progress", "--pgdata="+v.unfinished(), "--dbname="+primary.conninfo(""),
		"--wal-method=stream", "--slot="+primary.Slot, "--checkpoint=fast", "--no-password", "--no-manifest",
		// finish writes everything to disk with one call before the directory gets its name.
		"--no-sync")
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(v.unfinished(), "standby.signal"), nil); err != nil {
		return err
	}
	return v.finish()
}

// makeRoom removes the present data where a second copy of its size does not fit.
func (v Volume) makeRoom() error {
	present, err := exists(v.PGData())
	if err != nil || !present {
		return err
	}
	size, err := treeSize(v.PGData())
	if err != nil {
		return err
	}
	free, err := freeSpace(v.Root)
	if err != nil {
		return err
	}
	if free > size+size/10 {
		return nil
	}
	return v.discard()
}

// discard removes the data directory; a crash half-way leaves no part of it under its name.
func (v Volume) discard() error {
	if err := os.RemoveAll(v.old()); err != nil {
		return err
	}
	if err := renameDurably(v.PGData(), v.old()); err != nil {
		return err
	}
	return os.RemoveAll(v.old())
}

// Rewind takes back what the data has and the primary does not, and makes it a replica's. PostgreSQL must not run.
// After a failure only a clone helps: the data is marked as torn.
func (v Volume) Rewind(ctx context.Context, programs Programs, primary Upstream) error {
	primary.awaitPlace(ctx)
	if err := WriteFile(v.tornMarker(), nil); err != nil {
		return err
	}
	// pg_rewind recovers data that was not stopped cleanly first, which PostgreSQL refuses to do for a replica.
	if err := removeIfThere(v.standbySignal()); err != nil {
		return err
	}
	if _, err := programs.output(ctx, "pg_rewind", "--target-pgdata="+v.PGData(),
		"--source-server="+primary.conninfo(postgres.RoleSuperuser), "--no-sync"); err != nil {
		return err
	}
	if err := v.MarkReplica(); err != nil {
		return err
	}
	if err := syncTree(v.PGData()); err != nil {
		return err
	}
	return removeIfThere(v.tornMarker())
}

// MarkReplica makes PostgreSQL start as a replica.
func (v Volume) MarkReplica() error { return WriteFile(v.standbySignal(), nil) }
