package pg

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/acme/pg-operator/postgres"
)

// TestScramVerifier uses the example of RFC 7677.
func TestScramVerifier(t *testing.T) {
	const want = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
	salt, iterations, err := parseVerifier(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := scramVerifierWith("pencil", salt, iterations)
	if err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
	if !matchesVerifier("pencil", want) || matchesVerifier("pen", want) {
		t.Error("the verifier does not tell its password from another")
	}
	for _, verifier := range []string{"", "md5abc", "SCRAM-SHA-256$x:y$z", "SCRAM-SHA-256$4096$z", "SCRAM-SHA-256$4096:!$a:b"} {
		if matchesVerifier("", verifier) {
			t.Errorf("%q is a verifier of no password", verifier)
		}
	}
}

func TestScramVerifierRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.StringN(1, 40, -1).Draw(t, "password")
		verifier, err := scramVerifier(password)
		if err != nil || !matchesVerifier(password, verifier) {
			t.Fatalf("%q does not fit its own verifier: %v", password, err)
		}
		if strings.ContainsAny(verifier, `'\`) {
			t.Fatalf("the verifier %s has to be quoted", verifier)
		}
	})
}

func TestConninfoQuotes(t *testing.T) {
	u := Upstream{Host: `h'x \ y`, Port: 5432, Slot: "s"}
	got := u.conninfo("a b")
	if !strings.Contains(got, `host='h\'x \\ y'`) || !strings.Contains(got, "dbname='a b'") || strings.Contains(got, "hostaddr") {
		t.Errorf("got %s", got)
	}
	if strings.Contains(u.conninfo(""), "dbname") {
		t.Error("an empty database is named")
	}
}

func TestSummary(t *testing.T) {
	for name, tc := range map[string]struct{ output, want string }{
		"errors":   {"working\npg_basebackup: error: connection failed: FATAL:  no\npg_basebackup: removing\n", "pg_basebackup: error: connection failed: FATAL:  no"},
		"details":  {"initdb: error: a\ninitdb: detail: b\n", "initdb: error: a; initdb: detail: b"},
		"last":     {"one\n\ntwo\n\n", "two"},
		"nothing":  {"", ""},
		"too long": {"error: " + strings.Repeat("é", 600), "error: " + strings.Repeat("é", 296) + "…"},
	} {
		if got := summary(tc.output); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestLogTail(t *testing.T) {
	log := `2026-11-29 23:38:21 UTC [1] LOG:  starting PostgreSQL
it's [2] postgres@app psql FATAL:  the database system is starting up
[3] FATAL:  could not access file "x": No such file or directory
[4] FATAL:  password authentication failed for user "app"
[5] FATAL:  highest timeline 1 of the primary is behind recovery timeline 2
[5] LOG:  waiting for WAL to become available at 0/1 from the primary
plain text
last without end`
	var out strings.Builder
	tail := &logTail{}
	tail.copy(strings.NewReader(log), &out)
	if out.String() != log {
		t.Errorf("passed on %q", out.String())
	}
	if got := tail.lastFatal(); got != `could not access file "x": No such file or directory` {
		t.Errorf("fatal %q", got)
	}
	if got := tail.lastReceiver(); !strings.HasPrefix(got, "highest timeline 1") || !Hopeless(got) {
		t.Errorf("receiver %q", got)
	}
	if Hopeless("") || Hopeless("could not connect to the primary server: refused") {
		t.Error("gives up on what passes")
	}
}

// TestSettle goes through what a crash can leave behind while a data directory is replaced.
func TestSettle(t *testing.T) {
	for name, tc := range map[string]struct {
		// there are the directories that are there, each with a file that names it.
		there []string
		// want is which of them is the data directory afterwards.
		want string
	}{
		"nothing":                    {},
		"data":                       {there: []string{"pgdata"}, want: "pgdata"},
		"half a copy":                {there: []string{"pgdata.new"}},
		"data and half a copy":       {there: []string{"pgdata", "pgdata.new"}, want: "pgdata"},
		"a whole copy":               {there: []string{"pgdata.ready"}, want: "pgdata.ready"},
		"data and a whole copy":      {there: []string{"pgdata", "pgdata.ready"}, want: "pgdata.ready"},
		"moved away, a whole copy":   {there: []string{"pgdata.old", "pgdata.ready"}, want: "pgdata.ready"},
		"replaced, not yet removed":  {there: []string{"pgdata.old", "pgdata"}, want: "pgdata"},
		"discarded, not yet removed": {there: []string{"pgdata.old"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := Volume{Root: t.TempDir()}
			for _, dir := range tc.there {
				if err := os.MkdirAll(filepath.Join(v.Root, dir), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(v.Root, dir, "name"), []byte(dir), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // A second time changes nothing.
				if err := v.Settle(); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(filepath.Join(v.PGData(), "name"))
				if string(got) != tc.want {
					t.Errorf("data directory is %q (%v), want %q", got, err, tc.want)
				}
				entries, err := os.ReadDir(v.Root)
				if err != nil || len(entries) > 1 {
					t.Errorf("left over: %v, %v", entries, err)
				}
			}
		})
	}
}

func TestInspect(t *testing.T) {
	v := Volume{Root: t.TempDir()}
	inspect := func() (present bool, problem string) {
		t.Helper()
		data, err := v.Inspect(t.Context(), Programs{})
		if err != nil || !data.Known {
			t.Fatalf("%+v, %v", data, err)
		}
		return data.Present, data.Problem
	}
	if present, problem := inspect(); present || problem != "" {
		t.Errorf("no directory: %t %q", present, problem)
	}
	if err := os.Mkdir(v.PGData(), 0o700); err != nil {
		t.Fatal(err)
	}
	if present, problem := inspect(); present || problem != "" {
		t.Errorf("empty directory: %t %q", present, problem)
	}
	if err := os.WriteFile(filepath.Join(v.PGData(), "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if present, problem := inspect(); present || !strings.Contains(problem, "nothing was changed") {
		t.Errorf("somebody's files: %t %q", present, problem)
	}
	// A rewind takes the replica's mark away before it begins.
	for _, path := range []string{filepath.Join(v.PGData(), "PG_VERSION"), v.tornMarker()} {
		if err := os.WriteFile(path, []byte("17\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := v.Inspect(t.Context(), Programs{}); err != nil || !data.Present || !data.Torn || data.Primary() {
		t.Errorf("torn data: %+v, %v", data, err)
	}
}

// TestInspectInterrupted: a program that is ended from without says nothing about the data.
func TestInspectInterrupted(t *testing.T) {
	v, programs := Volume{Root: t.TempDir()}, Programs{Dir: t.TempDir(), Version: postgres.ServerVersion{Major: "17"}}
	if err := os.Mkdir(v.PGData(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v.PGData(), "PG_VERSION"), []byte("17\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for script, ended := range map[string]bool{"kill -KILL $$": true, "exit 1": false} {
		control := filepath.Join(programs.Dir, "pg_controldata")
		if err := os.WriteFile(control, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if data, err := v.Inspect(t.Context(), programs); (err != nil) != ended || !ended && data.Problem == "" {
			t.Errorf("%s: %+v, %v", script, data, err)
		}
	}
}

func TestLock(t *testing.T) {
	v := Volume{Root: t.TempDir()}
	release, err := v.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = v.Lock(); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("locked twice: %v", err)
	}
	release()
	again, err := v.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// TestReap has orphans given to this process, as PID 1 gets them.
func TestReap(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("cannot take orphans: %v", err)
	}
	// The shell prints the number of a child that outlives it.
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "sleep 0.05 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	orphan := strings.TrimSpace(string(out))
	owned := exec.CommandContext(t.Context(), "true")
	if err := children.start(owned); err != nil {
		t.Fatal(err)
	}
	deadline := t.Context()
	for {
		stat, err := os.ReadFile(filepath.Join("/proc", orphan, "stat"))
		if err != nil {
			break // Reaped.
		}
		if fields := strings.Fields(string(stat)); slices.Contains(fields, "Z") {
			children.reap()
		}
		if deadline.Err() != nil {
			t.Fatal("the orphan is not reaped")
		}
	}
	if err := children.wait(owned); err != nil {
		t.Errorf("a child of our own was reaped by somebody else: %v", err)
	}
}

// TestNewestTimeline: the newest timeline with log before a position counts, and nothing after it.
func TestNewestTimeline(t *testing.T) {
	v := Volume{Root: t.TempDir()}
	wal := filepath.Join(v.PGData(), "pg_wal")
	if err := os.MkdirAll(wal, 0o700); err != nil {
		t.Fatal(err)
	}
	const size = 16 << 20
	for _, name := range []string{
		"000000010000000000000004", "000000010000000000000005", "000000020000000000000005", "000000020000000000000006",
		"000000030000000000000007", "00000004.history", "000000090000000000000005.partial", "archive_status",
	} {
		if err := os.WriteFile(filepath.Join(wal, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for end, want := range map[postgres.LSN]postgres.Timeline{
		0: 0, 4*size + 1: 1, 5 * size: 1, 5*size + 1: 2, 6 * size: 2, 7 * size: 2, 7*size + 1: 3, 9 * size: 0,
	} {
		if got, err := v.newestTimeline(end, size); err != nil || got != want {
			t.Errorf("%s: timeline %d %v, want %d", end, got, err, want)
		}
	}
}

// TestReceiverAhead: a WAL receiver that waits for its primary to write as much as it has does not stream.
func TestReceiverAhead(t *testing.T) {
	const (
		waits  = "[5] LOG:  walreceiver requested start point 0/0D000000 on timeline 1 is ahead of the upstream server's flush position 0/0C000328, waiting\n"
		ends   = "[5] FATAL:  terminating walreceiver due to timeout while waiting for upstream to catch up\n"
		begins = "[6] LOG:  started streaming WAL from primary at 0/D000000 on timeline 1\n"
	)
	tail := &logTail{}
	for _, step := range []struct {
		line  string
		ahead bool
	}{{begins, false}, {waits, true}, {ends, true}, {waits, true}, {begins, false}} {
		tail.copy(strings.NewReader(step.line), &strings.Builder{})
		if tail.receiverAhead() != step.ahead {
			t.Errorf("after %q: ahead %v", step.line, !step.ahead)
		}
	}
	if !Hopeless(tail.lastReceiver()) || tail.lastFatal() != "" {
		t.Errorf("receiver %q, fatal %q", tail.lastReceiver(), tail.lastFatal())
	}
}
