package pg

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/acme/pg-operator/postgres"
)

// OSUser is the name of the operating system's user that the process runs as. PostgreSQL does not work without one.
func OSUser() (string, error) {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		advice := "run the pod as a user that it knows"
		if known, err := user.Lookup("postgres"); err == nil {
			advice = fmt.Sprintf("the image's user postgres has the id %s: run the pod as that", known.Uid)
		}
		return "", fmt.Errorf("the image's /etc/passwd has no user %d, without which PostgreSQL does not start; %s", os.Getuid(), advice)
	}
	return u.Username, nil
}

// Bootstrap makes a new database with initdb. passwordFile holds the superuser's password.
func (v Volume) Bootstrap(ctx context.Context, programs Programs, passwordFile string) error {
	if err := os.RemoveAll(v.unfinished()); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + v.unfinished(), "--username=" + postgres.RoleSuperuser, "--pwfile=" + passwordFile,
		"--auth-local=peer", "--auth-host=scram-sha-256", "--data-checksums", "--encoding=UTF8", "--locale=C.UTF-8",
		// finish writes everything to disk with one call before the directory gets its name.
		"--no-sync", "--no-instructions",
	}
	if postgres.CompareMajor(programs.Version.Major, "17") >= 0 {
		// Sorting that no later C library changes.
		args = append(args, "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
	}
	if _, err := programs.output(ctx, "initdb", args...); err != nil {
		return err
	}
	return v.finish()
}
