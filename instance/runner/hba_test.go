package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/authority"
)

// hbaWords are right and wrong words for each place of a line of pg_hba.conf. Those that come first come more often.
var (
	hbaKinds = []string{
		"hostssl", " hostssl", "\thostssl", `"hostssl"`, "host", "local", "hostnossl", "hostgssenc", "hostnogssenc", "HOSTSSL", "hostsl",
		"hostssl,host", "hostssl,", ",hostssl", "", "include", "#hostssl",
	}
	hbaNames = []string{
		"all", "app", "reports", `"all"`, "sameuser", "samerole", "samegroup", "postgres", "+readers", "a,b", "a, b", "a ,b", ",a",
		`"my db"`, `"a,b"`, `a"b c"d`, `"a""b"`, `""`, `""x`, `"x`, "+", `"+a"`, "é", "a#b", "replication", `"replication"`,
		"pgoperator_replication", `/^a\d+$`, `"/^(a|b){2,3}$"`, "/[a-z_]+", `/a.*?`, "/(", "/a{2,300}", "/^*", "/a**", "/[z-a]", `/\y`, "/",
		"/()", "/a|", "/(^)*b", "/a{2}{3}", "/a{3,2}", `/\.`, "@file", "a,@file", "map=x", strings.Repeat("n", 63), strings.Repeat("n", 300),
	}
	hbaAddresses = []string{
		"all", "10.0.0.0/8", "10.1.2.3/32", "fd00::/8", "::/0", "samehost", "samenet", "example.com", ".example.com", `"all"`,
		"10.0.0.0 255.0.0.0", "10.0.0.1 255.0.255.0", "fd00::1 ffff::", "10.0.0.1 ffff::", "10.0.0.1 all", "10.0.0.1", "fd00::1", "10.0.0.0/33",
		"/", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-1", `"10.0.0.0/ 8"`, `"10.0.0.0/8 "`, "10.0.0.0/8x", "10.0.0.0/99999999999999999999", "10/8",
		"10.1/16", "10.1 255.0", "0x0a.0.0.1/32", "0x.0.0.1/32", "010.0.0.1/8", "08.0.0.1/8", "10.0.0.256", "10.0.0.256/8", "fd00::/129",
		"example.com/8", "ex!ample", "10.0.0.0/8/8", "10.0.0.1,10.0.0.2", "1.2.3.4.5/8", "4294967295/32", "4294967296/32", "1.2.65536/8",
		"::ffff:10.0.0.1/96", `""`, `""/8`, "::", "1:2/8", `"10.0.0.0/8"`, "all,all", "1..2/8", ".1/8", "1./8", "+1/8",
	}
	hbaMethods = []string{
		"scram-sha-256", "cert", "reject", "scram-sha-256", "cert", "reject", "trust", "md5", "password", "ident", "peer", "gss", "ldap", "pam",
		"radius", "oauth", "sspi", "bsd", "scram", "SCRAM-SHA-256", `"reject"`, "reject,cert", "",
	}
	hbaOptions = []string{
		"", "", "", "", "clientcert=verify-ca", "clientcert=verify-full", "clientname=CN", "clientname=DN", "clientcert=1", "clientcert=",
		"clientname=cn", "map=x", "ldapserver=x", "nonsense=1", "nonsense", "=", "=x", "clientcert=verify-ca,clientname=CN",
		`clientcert="verify-ca"`, `"clientname=CN"`, "# comment", "#", ",", `"`, "radiussecrets=hunter2", "clientcert=verify-full clientname=CN",
	}
	hbaBlanks = []string{" ", " ", "\t", "  \t"}
)

// hbaLine draws a line. Every place has a right word more often than not, so that many lines are right.
func hbaLine(r *rand.Rand) string {
	var b strings.Builder
	for _, words := range [][]string{hbaKinds, hbaNames, hbaNames, hbaAddresses, hbaMethods, hbaOptions} {
		if r.IntN(60) == 0 {
			continue
		}
		pick := r.IntN(len(words))
		if r.IntN(4) > 0 {
			pick = r.IntN(min(4, len(words)))
		}
		b.WriteString(words[pick])
		b.WriteString(hbaBlanks[r.IntN(len(hbaBlanks))])
	}
	return strings.TrimRight(b.String(), " ")
}

// hbaUnjudged are lines that the operator refuses, and of which it does not know what PostgreSQL says: other files,
// methods that need something that a server may not have been built with, expressions that only PostgreSQL reads.
var hbaUnjudged = regexp.MustCompile(`@file|include|gss|ldap|pam|radius|oauth|sspi|bsd|(^|[ \t",])/`)

// TestHBAGrammar asks a real server of each major version that is there about lines of pg_hba.conf: what the operator accepts
// it must accept, and what the operator calls an error of the grammar it must refuse.
func TestHBAGrammar(t *testing.T) {
	found := map[string]pg.Programs{}
	for _, major := range postgres.Majors() {
		if programs, err := pg.FindPrograms(t.Context(), major); err == nil {
			found[programs.Version.Major] = programs
		}
	}
	if len(found) == 0 {
		t.Skip("no PostgreSQL to test with")
	}
	if asOrdinaryUser(t) {
		return
	}
	r := rand.New(rand.NewPCG(1, 2))
	lines := []string{
		"hostssl all all all scram-sha-256", "hostssl all all 10.0.0.1 255.255.255.255 reject", "local all all peer map=x",
		"local all all ident", "host all all all cert", "local all all reject clientcert=verify-ca", "hostssl all all all cert clientcert=verify-ca",
	}
	for len(lines) < 2000 {
		lines = append(lines, hbaLine(r))
	}
	for major, programs := range found {
		t.Run(major, func(t *testing.T) {
			server := startServer(t, programs)
			refused := server.judge(t, lines)
			problems := map[int]postgres.HBAProblem{}
			for _, problem := range postgres.CheckHBA(major, lines) {
				problems[problem.Line] = problem
			}
			accepted, grammar := 0, 0
			for i, line := range lines {
				problem, ours := problems[i]
				verdict, theirs := refused[i]
				switch {
				case !ours && theirs:
					t.Errorf("%q is accepted, but PostgreSQL says: %s", line, verdict)
				case ours && problem.Syntax && !theirs:
					t.Errorf("%q: %s; but PostgreSQL accepts it", line, problem.Detail)
				case ours && !problem.Syntax && theirs && !hbaUnjudged.MatchString(line):
					t.Errorf("%q: %s; this is an error of the grammar too: %s", line, problem.Detail, verdict)
				case !ours:
					accepted++
				case problem.Syntax:
					grammar++
				}
				if strings.Contains(problem.Detail, "hunter2") {
					t.Errorf("%q: the value of an option is repeated: %s", line, problem.Detail)
				}
			}
			t.Logf("%d lines: %d accepted, %d errors of the grammar, %d refused by the operator only",
				len(lines), accepted, grammar, len(lines)-accepted-grammar)
			if accepted < 100 || grammar < 300 {
				t.Error("the lines are too one-sided to tell anything")
			}
			server.accepts(t, major, lines, problems)
		})
	}
}

// hbaServer is a bare server.
type hbaServer struct {
	pg.Server
	process *pg.Process
	conn    *pgx.Conn
}

func startServer(t *testing.T, programs pg.Programs) *hbaServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") //nolint:usetesting // A socket's path is at most 107 bytes long.
	if err != nil {
		t.Fatal(err)
	}
	log := &syncBuffer{}
	t.Cleanup(func() {
		if t.Failed() && log.String() != "" {
			t.Logf("server:\n%s", log.String()[max(0, len(log.String())-4000):])
		}
		_ = os.RemoveAll(dir)
	})
	for _, sub := range []string{"data", "run"} {
		if err = os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	issue(authority.New(t), filepath.Join(dir, "server"), "db")
	put(t, filepath.Join(dir, "password"), []byte(password))
	s := &hbaServer{Server: pg.Server{
		Volume: pg.Volume{Root: filepath.Join(dir, "data")}, Programs: programs, RunDir: filepath.Join(dir, "run"),
		Listen: "127.0.0.1", Port: freePort(t), Instance: "db", Log: log,
		TLS: pg.Keys{Source: filepath.Join(dir, "server"), Dir: filepath.Join(dir, "run", "tls")},
	}}
	if _, err = s.TLS.Refresh(); err != nil {
		t.Fatal(err)
	}
	if err = s.Volume.Bootstrap(t.Context(), programs, filepath.Join(dir, "password")); err != nil {
		t.Fatal(err)
	}
	major := programs.Version.Major
	configuration := pg.Configuration{Parameters: postgres.Settings(major, nil), HBA: postgres.HBA(major, nil)}
	refused, err := s.Configure(t.Context(), configuration)
	if err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	if s.process, err = s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.process.Fence(context.Background()) })
	eventually(t, 20*time.Second, "the server accepts connections", s.process.Ready)
	if s.conn, err = s.Connect(t.Context(), postgres.RoleSuperuser); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close(context.Background()) })
	return s
}

// judge has the server read lines from its file, without using them, and returns what it says of those it refuses.
func (s *hbaServer) judge(t *testing.T, lines []string) map[int]string {
	t.Helper()
	if err := pg.WriteFile(filepath.Join(s.Volume.PGData(), "pg_hba.conf"), []byte(postgres.RenderHBA(lines))); err != nil {
		t.Fatal(err)
	}
	// A line whose type is not known has an error, even where PostgreSQL forgets to say which.
	rows, err := s.conn.Query(t.Context(),
		"SELECT line_number, coalesce(error, 'unknown') FROM pg_hba_file_rules WHERE error IS NOT NULL OR type IS NULL")
	if err != nil {
		t.Fatal(err)
	}
	refused := map[int]string{}
	var number int
	var verdict string
	if _, err := pgx.ForEachRow(rows, []any{&number, &verdict}, func() error {
		refused[number-1] = verdict
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return refused
}

// accepts has the server start with all lines that the operator accepts, as it renders them.
func (s *hbaServer) accepts(t *testing.T, major string, lines []string, problems map[int]postgres.HBAProblem) {
	t.Helper()
	var good []string
	for i, line := range lines {
		if _, refused := problems[i]; !refused {
			good = append(good, line)
		}
	}
	rendered := postgres.HBA(major, good)
	if bytes.Count([]byte(strings.Join(rendered, "\n")), []byte("\n")) != len(rendered)-1 {
		t.Error("a line became two")
	}
	for i, verdict := range s.judge(t, rendered) {
		t.Errorf("rendered as %q, but PostgreSQL says: %s", rendered[i], verdict)
	}
}

// setHBA gives the agents lines of pg_hba.conf, and awaits that both have done with them what they do.
func (s *story) setHBA(t *testing.T, lines []string, done func(contract.Report) bool) {
	t.Helper()
	s.config.HBA = lines
	s.config.SettingsHash = postgres.SettingsHash(s.config.Parameters, lines)
	s.setConfig(t, s.config)
	for _, h := range []*host{s.a, s.b} {
		s.await(t, 10*time.Second, h.name+" has the lines", func() bool {
			r := s.pods[h.name].report
			return r.SettingsHash == s.config.SettingsHash && done(r)
		})
	}
}

func hbaTaken(r contract.Report) bool { return !strings.Contains(r.SettingsError, "pg_hba.conf") }

// hba changes who may connect, without a restart.
func (s *story) hba(t *testing.T) {
	const began = "SELECT pg_postmaster_start_time()"
	before := s.a.mustSQL("postgres", began)
	app, super := "verify-full as the application", "verify-full as the superuser"
	for name, tc := range map[string]struct {
		lines []string
		want  map[string]bool
	}{
		"none":                       {nil, map[string]bool{app: true, super: false}},
		"the application kept out":   {[]string{"hostssl all app 127.0.0.0/8 reject"}, map[string]bool{app: false, super: false}},
		"kept out elsewhere":         {[]string{"hostssl all app 10.0.0.0/8 reject"}, map[string]bool{app: true, super: false}},
		"everybody is not everybody": {[]string{"hostssl all all all scram-sha-256"}, map[string]bool{app: true, super: false}},
		"the superuser by name":      {[]string{"hostssl all postgres samehost scram-sha-256"}, map[string]bool{app: true, super: true}},
		"closed, for others than the agents": {
			[]string{"hostssl all all all reject", "hostssl all postgres all scram-sha-256"}, map[string]bool{app: false, super: false},
		},
		"only with a certificate": {[]string{"hostssl all all all scram-sha-256 clientcert=verify-ca"}, map[string]bool{app: false, super: false}},
	} {
		s.setHBA(t, postgres.HBA(s.major, tc.lines), hbaTaken)
		if err := s.a.login(naming.UserApp, password, "verify-full"); (err == nil) != tc.want[app] {
			t.Errorf("%s: the application: %v", name, err)
		}
		if err := s.a.login(naming.UserSuperuser, superPassword, "verify-full"); (err == nil) != tc.want[super] {
			t.Errorf("%s: the superuser: %v", name, err)
		}
		s.await(t, 10*time.Second, name+": the replica streams", s.runs(s.b.name, replicaRole))
	}
	if after := s.a.mustSQL("postgres", began); after != before {
		t.Errorf("restarted at %s for lines of client authentication", after)
	}
}

// badHBA gives the agents a line that only PostgreSQL knows to be wrong.
func (s *story) badHBA(t *testing.T) {
	closed := postgres.HBA(s.major, []string{"hostssl all app all reject"})
	s.setHBA(t, closed, hbaTaken)
	bad := postgres.HBA(s.major, nil)
	bad[len(bad)-1] = "hostssl all all all scram-sha-256 clientcert=hunter2"
	told := func(r contract.Report) bool {
		return strings.Contains(r.SettingsError, `"hostssl all all all scram-sha-256 …" (an option has a wrong value)`)
	}
	s.setHBA(t, bad, told)
	wantOut := func(what string, h *host) {
		t.Helper()
		if err := h.login(naming.UserApp, password, "verify-full"); err == nil {
			t.Errorf("%s: the application gets in, which the last good lines forbid", what)
		}
	}
	wantOut("after the reload", s.a)
	s.config.Orders = append(s.config.Orders, contract.Order{ID: "4", Instance: s.a.name, Kind: contract.OrderRestart})
	s.setConfig(t, s.config)
	s.await(t, 20*time.Second, "the primary restarted with the last good lines", func() bool {
		r := s.pods[s.a.name].report
		return r.LastOrder == "4" && s.running(s.a.name, primaryRole) && told(r)
	})
	wantOut("after the restart", s.a)

	// An instance that knows no good lines lets nobody in.
	s.b.halt()
	state := s.b.path("data", "pg-operator.json")
	var memory map[string]any
	content, err := os.ReadFile(state)
	if err == nil {
		err = json.Unmarshal(content, &memory)
	}
	if err != nil || memory["hba"] == nil {
		t.Fatal("no lines are remembered", err)
	}
	delete(memory, "hba")
	if content, err = json.Marshal(memory); err != nil {
		t.Fatal(err)
	}
	put(t, state, content)
	incarnation := s.b.start()
	s.await(t, 20*time.Second, "the replica runs with no lines of the user's", func() bool {
		r := s.pods[s.b.name].report
		return r.Incarnation == incarnation && s.running(s.b.name, replicaRole) && told(r)
	})
	wantOut("without good lines", s.b)
	for _, h := range []*host{s.a, s.b} {
		if r := s.pod(h.name).report; strings.Contains(r.SettingsError, "hunter2") {
			t.Errorf("an option's value is reported: %s", r.SettingsError)
		}
	}

	s.setHBA(t, postgres.HBA(s.major, nil), hbaTaken)
	if err := s.a.login(naming.UserApp, password, "verify-full"); err != nil {
		t.Errorf("the application after the lines are right again: %v", err)
	}
}
