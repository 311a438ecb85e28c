package runner_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/authority"
)

// story is the life of a cluster of two, told in steps that build on each other.
type story struct {
	*world
	authority *authority.Authority
	a, b      *host
	major     string
	config    contract.Config
	systemID  string
	// frozenReplica is a postmaster of the replica that hangs while other things are tried.
	frozenReplica int
}

// TestAgents runs two agents with a real PostgreSQL each, and only the API server in memory.
func TestAgents(t *testing.T) {
	major, here := withPostgres(t)
	if !here {
		return
	}
	w := newWorld()
	s := &story{world: w, authority: authority.New(t), major: major}
	s.a, s.b = newHost(t, w, s.authority, 0), newHost(t, w, s.authority, 1)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"bootstrap", s.bootstrap},
		{"only TLS and passwords", s.authentication},
		{"clone and stream", s.clone},
		{"status over mTLS", s.status},
		{"settings", s.settings},
		{"settings of roles and databases", s.pinned},
		{"order to restart", s.order},
		{"settings that keep it from starting", s.badSettings},
		{"client authentication", s.hba},
		{"client authentication that PostgreSQL refuses", s.badHBA},
		{"postmaster killed", s.killed},
		{"replica's postmaster frozen", s.freezeReplica},
		{"password follows its Secret", s.password},
		{"certificate renewed", s.renewal},
		{"primary's postmaster frozen", s.frozen},
		{"replica restarted", s.revived},
		{"replica held", s.held},
		{"replica hangs", s.hung},
		{"replica wiped", s.wiped},
		{"replica fallen behind", s.behind},
		{"replica promoted by somebody", s.promoted},
		{"primary's volume went back", s.back},
		{"API server down", s.outage},
		{"primary restarted", s.restarted},
		{"Lease lost", s.fenced},
		{"retained data adopted", s.adopted},
		{"foreign data refused", s.foreign},
	} {
		begun := time.Now()
		if !t.Run(step.name, func(t *testing.T) {
			s.a.t, s.b.t = t, t
			step.run(t)
		}) {
			break
		}
		t.Logf("%-30s %v", step.name, time.Since(begun).Round(time.Millisecond))
	}
	s.a.t, s.b.t = t, t
}

func (s *story) bootstrap(t *testing.T) {
	s.config = config(s.major, 1, nil)
	s.setConfig(t, s.config)
	s.a.start()
	s.await(t, 20*time.Second, "the primary runs", s.runs(s.a.name, primaryRole))
	eventually(t, time.Second, "ready", func() bool {
		code, _, err := s.a.get(s.a.probeURL+contract.PathReady, "")
		return err == nil && code == 200
	})
	report := s.pod(s.a.name).report
	s.systemID = report.SystemID
	if s.systemID == "" || report.Timeline != 1 || report.SettingsHash != s.config.SettingsHash || report.SettingsError != "" {
		t.Errorf("report %+v", report)
	}
	s.await(t, time.Second, "the Lease knows the database", func() bool { return s.lease.SystemID == s.systemID })
	for query, want := range map[string]string{
		"SHOW data_checksums": "on", "SHOW server_encoding": "UTF8", "SHOW password_encryption": "scram-sha-256",
		"SELECT datcollate FROM pg_database WHERE datname = 'app'":                         "C.UTF-8",
		"SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'app'":            "app",
		"SELECT rolsuper FROM pg_roles WHERE rolname = 'pgoperator_replication'":           "f",
		"SELECT rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname = 'app'":   "t",
		"SELECT rolpassword IS NULL FROM pg_authid WHERE rolname='pgoperator_replication'": "t",
	} {
		if got := s.a.mustSQL("postgres", query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if log := s.a.output.String(); strings.Contains(log, password) || strings.Contains(log, superPassword) {
		t.Error("a password is in the log")
	}
}

func (s *story) authentication(t *testing.T) {
	if err := s.a.login(naming.UserApp, password, "verify-full"); err != nil {
		t.Errorf("app with TLS and its password: %v", err)
	}
	for name, attempt := range map[string]error{
		"wrong password":               s.a.login(naming.UserApp, "wrong", "verify-full"),
		"no TLS":                       s.a.login(naming.UserApp, password, "disable"),
		"replication role by password": s.a.login(naming.UserReplication, password, "verify-full"),
		"superuser over the network":   s.a.login(naming.UserSuperuser, superPassword, "verify-full"),
	} {
		if attempt == nil {
			t.Errorf("%s: let in", name)
		}
	}
}

func (s *story) clone(t *testing.T) {
	s.a.mustSQL("app", "CREATE TABLE public.note (text text)")
	s.config.Members = append(s.config.Members, s.b.name)
	s.setConfig(t, s.config)
	s.b.start()
	s.await(t, 20*time.Second, "the replica streams", s.runs(s.b.name, replicaRole))
	if id := s.pod(s.b.name).report.SystemID; id != s.systemID {
		t.Errorf("replica has the database %s, the primary %s", id, s.systemID)
	}
	s.replicates(t, "cloned")
	if got := s.a.mustSQL("postgres", "SELECT usename || ' ' || application_name FROM pg_stat_replication"); got != "pgoperator_replication orders-db-1" {
		t.Errorf("streams as %q", got)
	}
	if got := s.a.mustSQL("postgres", "SELECT string_agg(slot_name || ' ' || active, ',') FROM pg_replication_slots"); got != "pg_operator_1 true" {
		t.Errorf("slots %q", got)
	}
	eventually(t, 10*time.Second, "the replica has a slot for the primary, which holds no log", func() bool {
		return s.b.mustSQL("postgres", "SELECT string_agg(slot_name || ' ' || (restart_lsn IS NULL), ',') FROM pg_replication_slots") == "pg_operator_0 true"
	})
}

// replicates proves that what is written to the primary arrives at the replica.
func (s *story) replicates(t *testing.T, text string) {
	t.Helper()
	s.a.mustSQL("app", "INSERT INTO public.note VALUES ('"+text+"')")
	eventually(t, 10*time.Second, "the replica has "+text, func() bool {
		got, err := s.b.sql("app", "SELECT count(*) FROM public.note WHERE text = '"+text+"'")
		return err == nil && got == "1"
	})
}

func (s *story) status(t *testing.T) {
	code, body, err := s.b.get(s.b.statusURL+contract.PathStatus, s.a.path("client"))
	if err != nil || code != 200 {
		t.Fatalf("status: %d %v", code, err)
	}
	var status contract.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatal(err)
	}
	if status.Instance != s.b.name || status.Role != contract.RoleReplica || status.Received == "" || status.Replayed == "" {
		t.Errorf("status %s", body)
	}
	issue(s.authority, s.a.path("stranger"), "app")
	if code, _, err := s.b.get(s.b.statusURL+contract.PathStatus, s.a.path("stranger")); err != nil || code != 403 {
		t.Errorf("another certificate of the authority: %d %v", code, err)
	}
	if code, _, err := s.b.get(s.b.statusURL+contract.PathStatus, ""); err != nil || code != 401 {
		t.Errorf("no certificate: %d %v", code, err)
	}
	issue(authority.New(t), s.a.path("foreign"), naming.UserReplication)
	if code, body, err := s.b.get(s.b.statusURL+contract.PathStatus, s.a.path("foreign")); err != nil || code != 403 ||
		!strings.Contains(body, "another authority") {
		t.Errorf("a certificate of another authority: %d %s %v", code, body, err)
	}
	if code, _, err := s.b.get(s.b.statusURL+contract.PathStatus, s.a.path("server")); err != nil || code != 403 {
		t.Errorf("a server's certificate: %d %v", code, err)
	}
}

func (s *story) settings(t *testing.T) {
	members := s.config.Members
	s.config = config(s.major, 2, map[string]string{
		"wal_receiver_timeout": "2s", // By which a receiver that hangs is found out.
		"work_mem":             "5MB", "max_connections": "120", "no_such_setting": "1", "seq_page_cost": "many",
		"log_line_prefix": `it's %m \ `,
	})
	s.config.Members = members
	s.setConfig(t, s.config)
	for _, h := range []*host{s.a, s.b} {
		s.await(t, 10*time.Second, h.name+" has the settings", func() bool {
			r := s.pods[h.name].report
			return r.SettingsHash == s.config.SettingsHash && len(r.PendingRestart) == 1
		})
		r := s.pod(h.name).report
		if r.State != contract.StateRunning || r.PendingRestart[0] != "max_connections" ||
			!strings.Contains(r.SettingsError, "no_such_setting") || !strings.Contains(r.SettingsError, "seq_page_cost") {
			t.Errorf("report %+v", r)
		}
		if got := h.mustSQL("postgres", "SHOW work_mem"); got != "5MB" {
			t.Errorf("work_mem %q", got)
		}
		if got := h.mustSQL("postgres", "SHOW log_line_prefix"); got != `it's %m \ ` {
			t.Errorf("log_line_prefix %q", got)
		}
	}
}

// pinned gives the superuser and its database settings that would break every session, or run somebody's library.
func (s *story) pinned(t *testing.T) {
	hostile := map[string]string{
		"session_preload_libraries": "no_such_library", "local_preload_libraries": "no_such_library",
		"idle_session_timeout": "1", "statement_timeout": "1", "lock_timeout": "1", "idle_in_transaction_session_timeout": "1",
		"default_transaction_read_only": "on", "role": "app", "search_path": "nowhere",
	}
	if postgres.CompareMajor(s.major, "17") >= 0 {
		hostile["transaction_timeout"] = "1"
	}
	server := pg.Server{
		RunDir: s.a.path("run"), Port: s.a.port, Programs: pg.Programs{Version: postgres.ServerVersion{Major: s.major}},
	}
	conn, err := server.Connect(t.Context(), "postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	owners := []string{"ROLE postgres", "DATABASE postgres", "DATABASE app", "ROLE " + naming.UserReplication}
	for _, owner := range owners {
		for name, value := range hostile {
			if _, err := conn.Exec(t.Context(), "ALTER "+owner+" SET "+name+" = '"+value+"'"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if postgres.CompareMajor(s.major, "17") >= 0 {
		s.a.mustSQL("postgres", "CREATE FUNCTION public.no() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'")
		s.a.mustSQL("postgres", "CREATE EVENT TRIGGER no ON login EXECUTE FUNCTION public.no()")
		defer func() { _, _ = conn.Exec(context.Background(), "DROP EVENT TRIGGER no; DROP FUNCTION public.no()") }()
	}
	for _, database := range []string{"postgres", "app"} {
		session, err := server.Connect(t.Context(), database)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range hostile {
			if got, err := first(t.Context(), session, "SHOW "+name); err != nil || got == value || got == value+"ms" {
				t.Errorf("%s in %s: %q, %v", name, database, got, err)
			}
		}
		_ = session.Close(t.Context())
	}
	for _, owner := range owners {
		if _, err := conn.Exec(t.Context(), "ALTER "+owner+" RESET ALL"); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *story) order(t *testing.T) {
	s.config.Orders = []contract.Order{
		{ID: "1", Instance: s.a.name, Kind: contract.OrderRestart}, {ID: "2", Instance: s.b.name, Kind: contract.OrderRestart},
	}
	s.setConfig(t, s.config)
	for id, h := range map[string]*host{"1": s.a, "2": s.b} {
		s.await(t, 20*time.Second, h.name+" has restarted", func() bool {
			r := s.pods[h.name].report
			return r.LastOrder == id && len(r.PendingRestart) == 0 && r.State == contract.StateRunning
		})
		if got := h.mustSQL("postgres", "SHOW max_connections"); got != "120" {
			t.Errorf("max_connections %q", got)
		}
	}
	s.await(t, 10*time.Second, "the replica streams", s.runs(s.b.name, replicaRole))
}

func (s *story) badSettings(t *testing.T) {
	members, orders := s.config.Members, s.config.Orders
	good := s.config
	s.config = config(s.major, 2, map[string]string{"shared_preload_libraries": "no_such_library", "work_mem": "6MB"})
	s.config.Members = members
	s.config.Orders = append(orders, contract.Order{ID: "3", Instance: s.a.name, Kind: contract.OrderRestart})
	s.setConfig(t, s.config)
	s.await(t, 20*time.Second, "the primary runs with the last good settings", func() bool {
		r := s.pods[s.a.name].report
		return r.LastOrder == "3" && s.running(s.a.name, primaryRole) && strings.Contains(r.SettingsError, "no_such_library")
	})
	if got := s.pod(s.a.name).report.SettingsHash; got != good.SettingsHash {
		t.Errorf("settings %s in force, want the last good ones %s", got, good.SettingsHash)
	}
	good.Orders = s.config.Orders
	s.config = good
	s.setConfig(t, s.config)
	s.await(t, 20*time.Second, "the error is gone", func() bool {
		r := s.pods[s.a.name].report
		return r.SettingsHash == good.SettingsHash && !strings.Contains(r.SettingsError, "no_such_library")
	})
	s.await(t, 20*time.Second, "the replica streams", s.runs(s.b.name, replicaRole))
}

func (s *story) password(t *testing.T) {
	put(t, s.a.path("app", "password"), []byte("pâsswort ² new"))
	eventually(t, 10*time.Second, "the new password", func() bool {
		return s.a.login(naming.UserApp, "pâsswort ² new", "verify-full") == nil
	})
	if err := os.Remove(s.a.path("app", "password")); err != nil {
		t.Fatal(err)
	}
	before := s.a.mustSQL("postgres", "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'")
	s.a.halt()
	s.a.start()
	s.await(t, 20*time.Second, "the primary runs again", func() bool {
		return s.running(s.a.name, primaryRole) && s.pods[s.a.name].report.Incarnation == "start2"
	})
	if after := s.a.mustSQL("postgres", "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'"); after != before {
		t.Error("the password changed when its Secret went")
	}
	put(t, s.a.path("app", "password"), []byte(password))
}

func (s *story) renewal(t *testing.T) {
	before := s.pod(s.a.name).report.CertificateSerial
	issued := issue(s.authority, s.a.path("server"), s.a.name, cluster.InstanceHost(s.a.name, namespace))
	s.await(t, 10*time.Second, "the new certificate", func() bool {
		serial := s.pods[s.a.name].report.CertificateSerial
		return serial != before && serial == issued.SerialNumber.Text(16)
	})
	eventually(t, 5*time.Second, "the application comes in", func() bool {
		return s.a.login(naming.UserApp, password, "verify-full") == nil
	})
}

// postmaster is the process number of a host's PostgreSQL.
func postmaster(t *testing.T, h *host) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(h.pgdata(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func (s *story) killed(t *testing.T) {
	for _, h := range []*host{s.b, s.a} {
		pid := postmaster(t, h)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, h.name+" has another postmaster", func() bool {
			got, err := h.sql("postgres", "SELECT 1")
			return err == nil && got == "1" && postmaster(t, h) != pid
		})
	}
	s.await(t, 20*time.Second, "both run", func() bool {
		return s.running(s.a.name, primaryRole) && s.running(s.b.name, replicaRole)
	})
	s.replicates(t, "killed")
}

// frozen has a postmaster that lives, keeps its sessions, and lets nobody in.
func (s *story) frozen(t *testing.T) {
	pid := postmaster(t, s.a)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.await(t, 40*time.Second, "the primary says that it lets nobody in", func() bool {
		p := s.pods[s.a.name]
		return p.label == "" && p.report.State == contract.StateStarting && strings.Contains(p.report.Message, "not accept connections")
	})
	t.Logf("found out after %v", time.Since(begun).Round(time.Millisecond))
	if code, _, err := s.a.get(s.a.probeURL+contract.PathReady, ""); err != nil || code != 503 {
		t.Errorf("ready: %d, %v", code, err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.await(t, 20*time.Second, "the primary runs again", s.runs(s.a.name, primaryRole))
	if postmaster(t, s.a) != pid {
		t.Error("the postmaster was restarted")
	}
}

func (s *story) wiped(t *testing.T) {
	pid := postmaster(t, s.b)
	if err := os.RemoveAll(s.b.pgdata()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await(t, 20*time.Second, "the replica is gone", func() bool { return !s.running(s.b.name, replicaRole) })
	s.await(t, 20*time.Second, "the replica streams again", s.runs(s.b.name, replicaRole))
	s.replicates(t, "wiped while it ran")
	s.b.halt()
	if err := os.RemoveAll(s.b.pgdata()); err != nil {
		t.Fatal(err)
	}
	// Half a clone that a crash left behind is no data.
	put(t, s.b.pgdata()+".new/PG_VERSION", []byte(s.major))
	// Another clone goes on, or seems to: nobody tells that it ended.
	turn, other, err := pg.Upstream{
		Host: cluster.InstanceHost(s.a.name, namespace), Address: "127.0.0.1", Port: s.a.port, Keys: s.b.clientKeys(), Application: s.a.name,
	}.Turn(t.Context(), s.config.Members, 2*time.Second)
	if err != nil || turn == nil {
		t.Fatalf("no turn to clone, but %q's: %v", other, err)
	}
	incarnation := s.b.start()
	s.await(t, 20*time.Second, "the replica waits for its turn", func() bool {
		r := s.pods[s.b.name].report
		return r.State == contract.StateWaiting && strings.Contains(r.Message, "waits until "+s.a.name+" has been cloned")
	})
	s.await(t, 20*time.Second, "the replica streams again", func() bool {
		return s.running(s.b.name, replicaRole) && s.pods[s.b.name].report.Incarnation == incarnation
	})
	s.replicates(t, "wiped")
}

func (s *story) behind(t *testing.T) {
	orders, members := s.config.Orders, s.config.Members
	s.config = config(s.major, 2, map[string]string{"wal_keep_size": "0", "max_slot_wal_keep_size": "1MB", "max_connections": "120"})
	s.config.Members, s.config.Orders = members, orders
	s.setConfig(t, s.config)
	s.await(t, 10*time.Second, "the settings", func() bool {
		return s.pods[s.a.name].report.SettingsHash == s.config.SettingsHash
	})
	s.b.halt()
	removed := "SELECT count(*) = 0 FROM pg_ls_waldir() WHERE name = '" + s.a.mustSQL("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn())") + "'"
	eventually(t, 20*time.Second, "the log that the replica needs is removed", func() bool {
		s.a.mustSQL("app", "INSERT INTO public.note VALUES ('more')")
		s.a.mustSQL("postgres", "SELECT pg_switch_wal()")
		s.a.mustSQL("postgres", "CHECKPOINT")
		return s.a.mustSQL("postgres", removed) == "t"
	})
	incarnation := s.b.start()
	s.await(t, 30*time.Second, "the replica streams again", func() bool {
		return s.running(s.b.name, replicaRole) && s.pods[s.b.name].report.Incarnation == incarnation
	})
	if log := s.b.output.String(); !strings.Contains(log, "clones from orders-db-0: the primary no longer has the log") {
		t.Error("the log does not say why it was cloned again")
	}
	s.replicates(t, "caught up")
}

func (s *story) promoted(t *testing.T) {
	// The fence may come before the answer, and before the write; what matters is that nothing of it stays.
	if _, err := s.b.sql("postgres", "SELECT pg_promote()"); err != nil {
		t.Logf("promotion: %v", err)
	}
	_, _ = s.b.sql("app", "INSERT INTO public.note VALUES ('astray')")
	s.a.mustSQL("app", "INSERT INTO public.note VALUES ('straight')")
	s.await(t, 10*time.Second, "the replica is stopped", func() bool { return !s.running(s.b.name, replicaRole) })
	s.await(t, 40*time.Second, "the replica follows again", s.runs(s.b.name, replicaRole))
	s.replicates(t, "rewound")
	if got := s.b.mustSQL("app", "SELECT count(*) FROM public.note WHERE text = 'astray'"); got != "0" {
		t.Errorf("%s rows of the wrong history", got)
	}
}

// startPrimary starts the primary's agent, and waits for it to lead.
func (s *story) startPrimary(t *testing.T) {
	t.Helper()
	incarnation := s.a.start()
	s.await(t, 20*time.Second, "the primary runs", func() bool {
		return s.running(s.a.name, primaryRole) && s.pods[s.a.name].report.Incarnation == incarnation
	})
}

// back gives the primary an older state of its volume; what it lost is only on the replica, which must keep it.
func (s *story) back(t *testing.T) {
	s.a.halt()
	old := s.a.path("old")
	if err := os.CopyFS(old, os.DirFS(s.a.pgdata())); err != nil {
		t.Fatal(err)
	}
	s.startPrimary(t)
	s.await(t, 20*time.Second, "the replica streams", s.runs(s.b.name, replicaRole))
	s.replicates(t, "lost")
	s.a.mustSQL("postgres", "SELECT pg_switch_wal()")
	s.replicates(t, "lost too")
	s.a.halt()
	if err := os.RemoveAll(s.a.pgdata()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, s.a.pgdata()); err != nil {
		t.Fatal(err)
	}
	s.startPrimary(t)
	refused := func() bool {
		r := s.pods[s.b.name].report
		return r.State == contract.StateFailed && strings.Contains(r.Message, "more log than the primary") &&
			strings.Contains(r.Message, cluster.PVC(1))
	}
	s.await(t, 30*time.Second, "the replica keeps what it has", refused)
	eventually(t, 10*time.Second, "the replica is stopped", func() bool {
		_, err := os.Stat(filepath.Join(s.b.pgdata(), "postmaster.pid"))
		return os.IsNotExist(err)
	})
	// The primary has written more in the meantime, and the agent was restarted.
	for range 3 {
		s.a.mustSQL("app", "INSERT INTO public.note VALUES ('other')")
		s.a.mustSQL("postgres", "SELECT pg_switch_wal()")
	}
	s.b.halt()
	incarnation := s.b.start()
	s.await(t, 20*time.Second, "the replica still keeps what it has", func() bool {
		return refused() && s.pods[s.b.name].report.Incarnation == incarnation
	})
	s.b.halt()
	if err := os.RemoveAll(s.b.pgdata()); err != nil {
		t.Fatal(err)
	}
	s.b.start()
	s.await(t, 30*time.Second, "the replica streams again", s.runs(s.b.name, replicaRole))
	s.replicates(t, "cloned after the loss")
}

func (s *story) outage(t *testing.T) {
	pid := postmaster(t, s.a)
	s.config.LeaseDurationSeconds = 20 // All of it happens within the licence.
	s.setConfig(t, s.config)
	s.await(t, 10*time.Second, "the Lease is renewed", func() bool { return s.lease.Duration == 20*time.Second })
	s.do(func() { s.down = true })
	// Longer than a renewal's interval, shown by the agent's own complaint.
	eventually(t, 20*time.Second, "a renewal failed", func() bool {
		return strings.Contains(s.a.output.String(), errDown.Error())
	})
	s.replicates(t, "outage")
	s.b.halt()
	s.b.start()
	eventually(t, 30*time.Second, "the replica starts without the API server", func() bool {
		got, err := s.b.sql("app", "SELECT count(*) FROM public.note WHERE text = 'outage'")
		return err == nil && got == "1"
	})
	s.do(func() { s.down = false })
	s.await(t, 20*time.Second, "both run", func() bool {
		return s.running(s.a.name, primaryRole) && s.running(s.b.name, replicaRole)
	})
	// Somebody else's write to the Lease is a conflict for the next renewal, and no more.
	edited := ""
	s.do(func() {
		s.version++
		edited = strconv.Itoa(s.version)
		s.lease.Version = edited
	})
	s.config.LeaseDurationSeconds = 3
	s.setConfig(t, s.config)
	s.await(t, 10*time.Second, "the Lease is renewed", func() bool { return s.lease.Version != edited && s.lease.HeldBy() == s.a.name })
	if postmaster(t, s.a) != pid {
		t.Error("the primary was restarted")
	}
}

func (s *story) restarted(t *testing.T) {
	term := s.leaseNow().Term
	s.a.halt()
	if l := s.leaseNow(); l.HeldBy() != s.a.name || l.Released == 0 {
		t.Errorf("after a clean stop the Lease is %+v", l)
	}
	if s.primary.Instance != "" {
		t.Error("the Service still leads to the stopped primary")
	}
	s.a.start()
	s.await(t, 20*time.Second, "the primary runs", func() bool { return s.running(s.a.name, primaryRole) && s.lease.Term == term+1 })
	if s.leaseNow().Released != 0 {
		t.Error("a running primary is noted as stopped")
	}
	s.await(t, 20*time.Second, "the replica streams", s.runs(s.b.name, replicaRole))
	s.replicates(t, "restarted")
}

func (s *story) fenced(t *testing.T) {
	// A frozen postmaster cannot obey; the fence must not depend on it.
	frozen := postmaster(t, s.a)
	if err := syscall.Kill(frozen, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	holder := s.leaseNow().Holder
	s.hold("orders-db-7_zzz")
	s.await(t, 10*time.Second, "the former primary says what to do", func() bool {
		p := s.pods[s.a.name]
		return p.label == "" && p.report.State == contract.StateWaiting && strings.Contains(p.report.Message, "patch lease")
	})
	stopped := func() bool { return syscall.Kill(frozen, 0) != nil }
	eventually(t, 10*time.Second, "the former primary is stopped", stopped)
	// A member that does not lead is not given way to either.
	s.hold(lease.Identity(s.b.name, "zzz"))
	s.await(t, 10*time.Second, "the former primary waits for it", func() bool {
		return strings.Contains(s.pods[s.a.name].report.Message, "answers as the primary") ||
			strings.Contains(s.pods[s.a.name].report.Message, "proves to be the primary")
	})
	if _, err := os.Stat(filepath.Join(s.a.pgdata(), "standby.signal")); !os.IsNotExist(err) {
		t.Errorf("the only primary's data is marked as a replica's: %v", err)
	}
	s.hold("")
	s.await(t, 20*time.Second, "the primary takes the Lease back", func() bool {
		return s.running(s.a.name, primaryRole) && s.lease.Holder == holder && s.running(s.b.name, replicaRole)
	})
	s.replicates(t, "held by strangers")
	s.a.halt()
	s.b.halt()
}

// hold writes a holder into the Lease, as somebody with kubectl can.
func (s *story) hold(holder string) {
	s.do(func() {
		s.lease.Holder = holder
		s.version++
		s.lease.Version = strconv.Itoa(s.version)
	})
}

func (s *story) adopted(t *testing.T) {
	// A cluster that was deleted and made again: a new Lease, the volumes kept.
	for _, h := range []*host{s.a, s.b} {
		if err := os.Remove(h.path("data", "pg-operator.json")); err != nil {
			t.Fatal(err)
		}
	}
	s.config.SystemID, s.config.Orders = s.systemID, nil
	s.do(func() {
		s.version++
		s.lease = lease.Lease{Version: strconv.Itoa(s.version)}
		s.pods, s.terms = map[string]podView{}, map[int32]string{}
	})
	s.setConfig(t, s.config)
	s.b.start()
	s.a.start()
	s.await(t, 30*time.Second, "both run", func() bool {
		return s.running(s.a.name, primaryRole) && s.running(s.b.name, replicaRole)
	})
	if id := s.pod(s.a.name).report.SystemID; id != s.systemID {
		t.Errorf("database %s, want the retained %s", id, s.systemID)
	}
	s.replicates(t, "adopted")
	s.a.halt()
	s.b.halt()
}

func (s *story) foreign(t *testing.T) {
	before := pg.Fingerprint(filepath.Join(s.a.pgdata(), "global", "pg_control"))
	s.config.SystemID = "1"
	s.do(func() {
		s.version++
		s.lease = lease.Lease{Version: strconv.Itoa(s.version)}
		s.pods = map[string]podView{}
	})
	s.setConfig(t, s.config)
	s.a.start()
	s.await(t, 10*time.Second, "the data is refused", func() bool { return s.pods[s.a.name].report.State == contract.StateFailed })
	if message := s.pod(s.a.name).report.Message; !strings.Contains(message, s.systemID) || !strings.Contains(message, "nothing was changed") {
		t.Errorf("message %q", message)
	}
	if s.leaseNow().Holder != "" {
		t.Error("took the Lease")
	}
	s.a.halt()
	if pg.Fingerprint(filepath.Join(s.a.pgdata(), "global", "pg_control")) != before {
		t.Error("the data was touched")
	}
}
