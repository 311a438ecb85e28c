package runner_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/postgres"
)

// traps makes, in a schema that stands first in everybody's search_path, functions, operators, types and views with the
// names of PostgreSQL's own. Each tells the log as whom it runs, which works on replicas, too.
const traps = `
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.sprung(what pg_catalog.text) RETURNS pg_catalog.bool LANGUAGE plpgsql AS
  $$BEGIN RAISE LOG 'trap % sprung as %', what, current_user; RETURN true; END$$;
CREATE FUNCTION evil.same(what pg_catalog.text, value anyelement) RETURNS anyelement LANGUAGE plpgsql AS
  $$BEGIN PERFORM evil.sprung(what); RETURN value; END$$;
CREATE FUNCTION evil.try(statement pg_catalog.text) RETURNS void LANGUAGE plpgsql AS
  $$BEGIN EXECUTE statement; EXCEPTION WHEN others THEN NULL; END$$; -- Some names stand twice in one.
DO $do$
DECLARE o record;
BEGIN
  FOR o IN SELECT format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', p.proname,
      pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), format('BEGIN PERFORM evil.sprung(%L); RETURN %s; END',
        p.proname, CASE WHEN p.proretset OR p.proargmodes IS NOT NULL OR t.typname = 'void' THEN '' ELSE 'NULL' END)) AS make
    FROM pg_proc AS p JOIN pg_type AS t ON t.oid = p.prorettype
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
      AND (p.proname LIKE 'pg\_%' OR p.proname IN ('current_setting', 'set_config', 'has_function_privilege', 'lower'))
      AND (t.typtype <> 'p' OR t.typname = 'void' OR p.proargmodes IS NOT NULL)
      AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) AS a JOIN pg_type AS i ON i.oid = a WHERE i.typtype = 'p')
  LOOP PERFORM evil.try(o.make); END LOOP;
  FOR o IN SELECT format('CREATE FUNCTION evil.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L;', p.oid, p.oprleft::regtype,
      p.oprright::regtype, p.oprresult::regtype, format('BEGIN PERFORM evil.sprung(%L); RETURN NULL; END', p.oprname)) ||
      format('CREATE OPERATOR evil.%s (FUNCTION = evil.operator_%s, LEFTARG = %s, RIGHTARG = %s)', p.oprname, p.oid,
      p.oprleft::regtype, p.oprright::regtype) AS make
    FROM pg_operator AS p
    WHERE p.oprname IN ('=', '<>', '<', '>', '||', '~', '!~', '~~', '+', '-')
      AND p.oprleft = ANY ('{text,name,"char",int4,int8,oid,pg_lsn,bool,timestamptz}'::regtype[])
      AND p.oprright = ANY ('{text,name,"char",int4,int8,oid,pg_lsn,bool,timestamptz}'::regtype[])
  LOOP PERFORM evil.try(o.make); END LOOP;
  FOR o IN SELECT format('CREATE VIEW evil.%I AS SELECT (r).* FROM (SELECT evil.same(%L, NULL::pg_catalog.%I) AS r) AS s',
      c.relname, c.relname, c.relname) AS make
    FROM pg_class AS c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
      AND NOT EXISTS (SELECT FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND t.typtype = 'p')
  LOOP PERFORM evil.try(o.make); END LOOP;
  FOR o IN SELECT format('CREATE DOMAIN evil.%I AS pg_catalog.%I CHECK (evil.sprung(%L))', t.typname, t.typname, t.typname) AS make
    FROM pg_type AS t WHERE t.oid = ANY ('{text,name,int4,int8,oid,pg_lsn,bool}'::regtype[])
  LOOP PERFORM evil.try(o.make); END LOOP;
END
$do$;
CREATE FUNCTION evil.unnest(pg_catalog.name[]) RETURNS SETOF pg_catalog.name LANGUAGE plpgsql AS
  $$BEGIN PERFORM evil.sprung('unnest'); END$$;
`

// crippling are settings that the owner of a database may give it, and that would stop a session which has them.
var crippling = map[string]string{
	"search_path": "evil, pg_catalog", "statement_timeout": "1", "lock_timeout": "1", "idle_in_transaction_session_timeout": "1",
	"idle_session_timeout": "1", "default_transaction_read_only": "on", "default_transaction_isolation": "serializable",
	"default_transaction_deferrable": "on", "client_encoding": "LATIN1", "standard_conforming_strings": "off", "bytea_output": "escape",
	"datestyle": "German", "intervalstyle": "sql_standard", "array_nulls": "off", "transform_null_equals": "on", "role": "app",
	"local_preload_libraries": "no_such_library", "application_name": "orders-db-1", "row_security": "off", "synchronous_commit": "on",
}

// usable adds settings with which a session works all the same.
func usable(settings map[string]string) map[string]string {
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"} {
		settings[name] = "0"
	}
	settings["local_preload_libraries"], settings["search_path"], settings["client_encoding"] = "", "pg_catalog", "UTF8"
	settings["role"], settings["standard_conforming_strings"] = "none", "on"
	return settings
}

// forbidden is what an owner of databases must not be allowed.
var forbidden = []string{
	"CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION pg_catalog.pg_notify()",
	"CREATE ROLE r", "ALTER ROLE app REPLICATION", "ALTER ROLE app CREATEROLE", "GRANT pgoperator_replication TO app", "SET ROLE pgoperator_replication",
	"ALTER ROLE postgres SET search_path = evil", "ALTER ROLE pgoperator_replication SET search_path = evil",
	"ALTER ROLE ALL SET search_path = evil", "ALTER DATABASE app SET session_preload_libraries = 'x'", "ALTER SYSTEM SET port = 1",
	"CREATE CAST (pg_catalog.pg_lsn AS pg_catalog.text) WITH INOUT", "CREATE FUNCTION pg_catalog.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
	"CREATE FUNCTION f() RETURNS int LANGUAGE internal AS 'x'", "CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'x'",
	"COPY public.note TO PROGRAM 'true'", "COPY public.note TO '/tmp/x'", "SELECT pg_read_file('PG_VERSION')", "SELECT lo_import('/etc/passwd')",
	"SELECT pg_ls_dir('.')", "SELECT pg_promote()", "SELECT pg_reload_conf()", "SELECT pg_switch_wal()", "SELECT pg_drop_replication_slot('pg_operator_1')",
	"SELECT pg_create_physical_replication_slot('x')", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' LIMIT 1",
	"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'pgoperator_replication' LIMIT 1", "SELECT rolpassword FROM pg_authid",
	"BEGIN; LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE", "ROLLBACK; BEGIN; LOCK TABLE pg_authid IN ACCESS SHARE MODE", "ROLLBACK; REINDEX TABLE pg_authid",
	"CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p", "CREATE TABLESPACE s LOCATION '/tmp'", "SET session_replication_role = replica",
}

// client is how a role connects over the network.
func (h *host) client(role, database string) (*pgx.ConnConfig, error) {
	return pgx.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=%s password='%s' dbname=%s sslmode=verify-full sslrootcert=%s connect_timeout=5",
		h.port, role, password, database, h.path("server", "ca.crt")))
}

// app connects to an instance as the application does.
func (h *host) app(ctx context.Context, database string, settings map[string]string) (*pgx.Conn, error) {
	config, err := h.client(naming.UserApp, database)
	if err != nil {
		return nil, err
	}
	maps.Copy(config.RuntimeParams, settings)
	return pgx.ConnectConfig(ctx, config)
}

// movesIn lets the owner of the databases, to which somebody careless gave PostgreSQL's own as well, prepare both for
// whoever comes.
func (c *trio) movesIn(t *testing.T) {
	h := c.holder()
	h.mustSQL("postgres", "ALTER DATABASE postgres OWNER TO app")
	for _, database := range []string{"app", "postgres"} {
		conn, err := h.app(t.Context(), database, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = conn.Exec(t.Context(), traps); err != nil {
			t.Fatal(err)
		}
		made, err := first(t.Context(), conn, "SELECT count(*) > 600 FROM pg_depend WHERE refobjid = 'evil'::regnamespace")
		if err != nil || made != "t" {
			t.Errorf("too few traps, %v", err)
		}
		for name, value := range crippling {
			if name == "search_path" {
				_, err = conn.Exec(t.Context(), "ALTER DATABASE "+database+" SET search_path = "+value)
			} else {
				_, err = conn.Exec(t.Context(), "ALTER DATABASE "+database+" SET "+name+" = '"+value+"'")
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, statement := range forbidden {
			_, err = conn.Exec(t.Context(), statement)
			if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "42501" && refusal.Code != "0A000" {
				t.Errorf("the owner of database %s: %s: %v, want that it is not allowed", database, statement, err)
			}
		}
		if err = conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.app(t.Context(), "postgres", map[string]string{"replication": "database"}); err == nil {
		t.Error("the owner of a database replicates")
	}
}

// gainedNothing wants that nobody but the owner ran the owner's code, whatever happened meanwhile, and that a session
// like those before would have, if its search_path were the database's.
func (c *trio) gainedNothing(t *testing.T) {
	logged := false
	for _, h := range c.hosts {
		log := h.output.String()
		if logged = logged || strings.Contains(log, "statement: ALTER DATABASE app SET"); strings.Contains(log, "SCRAM-SHA-256$") {
			t.Errorf("the verifier of a password is in the log of %s", h.name)
		}
		for line := range strings.Lines(log) {
			if strings.Contains(line, "sprung as "+postgres.RoleSuperuser) || strings.Contains(line, "sprung as "+postgres.RoleReplication) {
				t.Fatalf("on %s: %s", h.name, line)
			}
		}
	}
	if !logged {
		t.Error("statements are not logged, so nothing says that ours are not")
	}
	h := c.holder()
	for _, query := range []string{
		"SELECT pg_is_in_recovery()", "SELECT 1 WHERE current_database() = 'app'::name", "SELECT count(*) FROM pg_settings", "SELECT '1'::int8",
	} {
		before := strings.Count(h.output.String(), "sprung as "+postgres.RoleSuperuser)
		config, err := pgx.ParseConfig(fmt.Sprintf("host='%s' port=%d user=postgres dbname=postgres", h.path("run"), h.port))
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams = usable(map[string]string{"default_transaction_read_only": "off"})
		delete(config.RuntimeParams, "search_path")
		careless, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = first(t.Context(), careless, query); err != nil {
			t.Log(query, err)
		}
		_ = careless.Close(t.Context())
		eventually(t, 5*time.Second, "the traps work: "+query, func() bool {
			return strings.Count(h.output.String(), "sprung as "+postgres.RoleSuperuser) > before
		})
	}
	for _, database := range []string{"app", "postgres"} {
		h.mustSQL("postgres", "ALTER DATABASE "+database+" RESET ALL")
	}
}

// crowd are sessions of the application's that take all the places there are on some instances, under names of ours, and
// read the table all the time, so that replicas cannot apply what changes it.
type crowd struct {
	hosts []*host
	stop  context.CancelFunc
	ended sync.WaitGroup
	mu    sync.Mutex
	full  map[string]int
}

func gather(t *testing.T, hosts []*host) *crowd {
	ctx, cancel := context.WithCancel(t.Context())
	c := &crowd{hosts: hosts, stop: cancel, full: map[string]int{}}
	for _, h := range hosts {
		c.ended.Go(func() { c.besiege(ctx, h) })
	}
	return c
}

func (c *crowd) besiege(ctx context.Context, h *host) {
	var sessions []*pgx.Conn
	defer func() {
		for _, session := range sessions {
			_ = session.Close(context.WithoutCancel(ctx))
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		session, err := h.app(ctx, "app", usable(map[string]string{
			"application_name": "pg-operator", "default_transaction_isolation": "repeatable read",
		}))
		if err == nil {
			sessions = append(sessions, session)
			_, _ = session.Exec(ctx, "BEGIN; SELECT count(*) FROM public.note")
			continue
		}
		if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == "53300" {
			c.mu.Lock()
			c.full[h.name]++
			c.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// await waits until there is no place left anywhere, for so many attempts.
func (c *crowd) await(t *testing.T, attempts int) {
	t.Helper()
	eventually(t, 20*time.Second, "the instances are full", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, h := range c.hosts {
			if c.full[h.name] < attempts {
				return false
			}
		}
		return true
	})
}

// crowded takes all places on all instances, keeps the replicas from applying what was written, and then has the primary
// die: another instance has to take over, and the old primary has to follow it, with no place free for either.
func (c *trio) crowded(t *testing.T) {
	old := c.holder()
	var replicas []*host
	for _, h := range c.hosts {
		if h != old {
			replicas = append(replicas, h)
		}
	}
	besieged := gather(t, replicas)
	besieged.await(t, 3)
	old.mustSQL("app", "ALTER TABLE public.note ADD COLUMN more int")
	besieging := gather(t, []*host{old})
	besieging.await(t, 3)
	defer func() {
		for _, crowd := range []*crowd{besieged, besieging} {
			crowd.stop()
			crowd.ended.Wait()
		}
	}()
	if err := syscall.Kill(postmaster(t, old), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	next := c.awaitSuccessor(t, old)
	if got := next.mustSQL("app", "SELECT count(*) FROM pg_attribute WHERE attname = 'more'"); got != "1" {
		t.Errorf("%s took over without the column", next.name)
	}
	c.awaitReplicas(t)
}

// impostor has somebody with the right to replicate a database call himself like a replica that commits wait for: by
// that name PostgreSQL would believe him what is safe, and so he is sent away.
func (c *trio) impostor(t *testing.T) {
	h := c.holder()
	h.mustSQL("app", "CREATE PUBLICATION feed FOR TABLE public.note")
	h.mustSQL("postgres", "CREATE ROLE feed LOGIN REPLICATION PASSWORD '"+password+"'")
	c.await(t, 30*time.Second, "the Lease has the quorum", func() bool { return len(c.lease.Sync.InForce) > 0 })
	config, err := h.client("feed", "app")
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams = usable(map[string]string{
		"replication": "database", "application_name": c.leaseNow().Sync.InForce[0].Standbys[0],
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err = conn.Exec(ctx, "CREATE_REPLICATION_SLOT feed TEMPORARY LOGICAL pgoutput").ReadAll(); err != nil {
		t.Fatal(err)
	}
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT feed LOGICAL 0/0 (proto_version '1', publication_names 'feed')"})
	if err = conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		message, err := conn.ReceiveMessage(ctx)
		if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == "57P01" {
			return // Terminated by the agent.
		}
		if err != nil {
			t.Fatalf("%T %v, want that the session is ended", message, err)
		}
	}
}

// stranger connects to an instance and does not say who he is, after he said whom he wants to be, or not even that.
func stranger(t *testing.T, h *host, speaks bool) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", h.port), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if !speaks {
		return
	}
	// What does not get through is of no use to him, and no reason for the test to fail.
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	request, _ := (&pgproto3.SSLRequest{}).Encode(nil)
	_, _ = conn.Write(request)
	_, _ = conn.Read(make([]byte, 1))
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Strangers verify nobody.
	hello, _ := (&pgproto3.StartupMessage{
		ProtocolVersion: pgproto3.ProtocolVersionNumber, Parameters: map[string]string{"user": naming.UserApp, "database": "app"},
	}).Encode(nil)
	_, _ = secure.Write(hello)
	_, _ = secure.Read(make([]byte, 1))
}

// strangers has somebody without any password take all places of the replicas, and then the primary die: that keeps
// nobody from taking over.
func (c *trio) strangers(t *testing.T) {
	old := c.holder()
	for _, h := range c.hosts {
		for n := range 2 * 20 { // max_connections, and those for which there is no place.
			if h != old {
				stranger(t, h, n < 30)
			}
		}
	}
	if err := syscall.Kill(postmaster(t, old), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.awaitSuccessor(t, old)
	c.awaitReplicas(t)
}
