package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/postgres"
)

// Provision is what a primary needs beyond what initdb makes.
type Provision struct {
	// SuperuserPassword and AppPassword are files of mounted Secrets. A file that is gone changes nothing: a Secret
	// that was deleted by mistake must not lock the application out.
	SuperuserPassword, AppPassword string
	// AppUser and AppDatabase are made for the application.
	AppUser, AppDatabase string
	// Slots are the replication slots that must exist; others of ours are dropped.
	Slots []string
}

// rewindFunctions are what pg_rewind calls on the primary.
var rewindFunctions = []string{
	"pg_ls_dir(text, boolean, boolean)", "pg_stat_file(text, boolean)",
	"pg_read_binary_file(text)", "pg_read_binary_file(text, bigint, bigint, boolean)",
}

// Provision makes roles, the database and replication slots, as far as they are missing.
func (s Server) Provision(ctx context.Context, p Provision) error {
	conn, err := s.Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := provisionReplication(ctx, conn); err != nil {
		return fmt.Errorf("cannot make the role %s: %w", postgres.RoleReplication, err)
	}
	if err := provisionSlots(ctx, conn, p.Slots); err != nil {
		return fmt.Errorf("cannot make the replication slots: %w", err)
	}
	if err := provisionLogin(ctx, conn, p.AppUser, p.AppPassword); err != nil {
		return fmt.Errorf("cannot make the role %s: %w", p.AppUser, err)
	}
	if err := provisionLogin(ctx, conn, postgres.RoleSuperuser, p.SuperuserPassword); err != nil {
		return fmt.Errorf("cannot set the password of %s: %w", postgres.RoleSuperuser, err)
	}
	if err := provisionDatabase(ctx, conn, p.AppDatabase, p.AppUser); err != nil {
		return fmt.Errorf("cannot make the database %s: %w", p.AppDatabase, err)
	}
	return nil
}

// provisionReplication makes the role that replicas stream and rewind with. It has no password: only its
// certificate lets it in.
func provisionReplication(ctx context.Context, conn *pgx.Conn) error {
	role := quoteIdentifier(postgres.RoleReplication)
	var exists, fits bool
	err := conn.QueryRow(ctx, `SELECT count(*) = 1, coalesce(bool_and(rolreplication AND rolcanlogin AND NOT rolsuper), false)
		FROM pg_authid WHERE rolname = $1`, postgres.RoleReplication).Scan(&exists, &fits)
	if err != nil {
		return err
	}
	var statements []string
	if !exists {
		statements = append(statements, "CREATE ROLE "+role)
	}
	if !fits {
		statements = append(statements, "ALTER ROLE "+role+" LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS")
	}
	for _, function := range rewindFunctions {
		var granted bool
		if exists {
			if err := conn.QueryRow(ctx, "SELECT has_function_privilege($1::name, $2::text, 'EXECUTE')",
				postgres.RoleReplication, function).Scan(&granted); err != nil {
				return err
			}
		}
		if !granted {
			statements = append(statements, "GRANT EXECUTE ON FUNCTION pg_catalog."+function+" TO "+role)
		}
	}
	var due bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = $1 AND NOT EXISTS (
			SELECT FROM pg_auth_members AS m JOIN pg_roles AS u ON u.oid = m.member WHERE m.roleid = r.oid AND u.rolname = $2))`,
		roleReserved, postgres.RoleReplication).Scan(&due); err != nil {
		return err
	}
	if due {
		statements = append(statements, "GRANT "+roleReserved+" TO "+role)
	}
	return inTransaction(ctx, conn, statements)
}

// roleReserved may use the places of reserved_connections, which rewinds need where applications take all others.
// PostgreSQL has it from version 16 on.
const roleReserved = "pg_use_reserved_connections"

func inTransaction(ctx context.Context, conn *pgx.Conn, statements []string) error {
	if len(statements) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// provisionLogin makes a role that logs in with the password in a file, and keeps the password in step with it.
func provisionLogin(ctx context.Context, conn *pgx.Conn, role, passwordFile string) error {
	var exists bool
	var verifier string
	err := conn.QueryRow(ctx, "SELECT count(*) = 1, coalesce(max(rolpassword), '') FROM pg_authid WHERE rolname = $1", role).
		Scan(&exists, &verifier)
	if err != nil {
		return err
	}
	if !exists {
		if _, err = conn.Exec(ctx, "CREATE ROLE "+quoteIdentifier(role)+" LOGIN"); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(passwordFile)
	password := strings.TrimRight(string(content), "\r\n")
	if errors.Is(err, fs.ErrNotExist) || err == nil && password == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if matchesVerifier(password, verifier) {
		return nil
	}
	if verifier, err = scramVerifier(password); err != nil {
		return err
	}
	// ALTER ROLE takes no parameters; a verifier has no quotes to escape.
	_, err = conn.Exec(ctx, "ALTER ROLE "+quoteIdentifier(role)+" PASSWORD '"+verifier+"'")
	return err
}

func provisionDatabase(ctx context.Context, conn *pgx.Conn, database, owner string) error {
	var exists bool
	err := conn.QueryRow(ctx, "SELECT count(*) = 1 FROM pg_database WHERE datname = $1", database).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+quoteIdentifier(database)+" OWNER "+quoteIdentifier(owner))
	return err
}

func quoteIdentifier(name string) string { return pgx.Identifier{name}.Sanitize() }
