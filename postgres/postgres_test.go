package postgres_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/acme/pg-operator/postgres"
)

func TestCompareMajor(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want int
	}{
		"same":           {"15", "15", 0},
		"older":          {"15", "18", -1},
		"newer":          {"16", "15", 1},
		"by number":      {"9", "15", -1},
		"not a number":   {"x", "15", -1},
		"both not":       {"a", "b", -1},
		"hundred is new": {"100", "18", 1},
	} {
		if got := postgres.CompareMajor(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: CompareMajor(%q, %q) = %d, want %d", name, tc.a, tc.b, got, tc.want)
		}
	}
	if !slices.IsSortedFunc(postgres.Majors(), postgres.CompareMajor) {
		t.Error("Majors is not sorted")
	}
}

func TestParseServerVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		output, major, full string
		fails               bool
	}{
		"debian": {output: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", major: "15", full: "15.18"},
		"plain":  {output: "postgres (PostgreSQL) 17.6\n", major: "17", full: "17.6"},
		"beta":   {output: "postgres (PostgreSQL) 18beta2", major: "18", full: "18beta2"},
		"other":  {output: "psql 15", fails: true},
		"cut":    {output: "postgres (PostgreSQL)", fails: true},
		"word":   {output: "postgres (PostgreSQL) devel", fails: true},
		"empty":  {fails: true},
	} {
		got, err := postgres.ParseServerVersion(tc.output)
		if (err != nil) != tc.fails || got.Major != tc.major || got.Full != tc.full {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestLSN(t *testing.T) {
	for _, text := range []string{"", "/", "16", "G/0", "0/G", "1/2/3", "0/100000000", "-1/0", "+1/0", "0/+1", " 0/0"} {
		if l, err := postgres.ParseLSN(text); err == nil {
			t.Errorf("ParseLSN(%q) = %s, want an error", text, l)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := postgres.LSN(rapid.Uint64().Draw(t, "a"))
		b := postgres.LSN(rapid.Uint64().Draw(t, "b"))
		parsed, err := postgres.ParseLSN(a.String())
		if err != nil || parsed != a {
			t.Fatalf("%s parses as %s, %v", a, parsed, err)
		}
		if after := a.BytesAfter(b); a > b && uint64(b)+after != uint64(a) || a <= b && after != 0 {
			t.Fatalf("%s lies %d bytes after %s", a, after, b)
		}
	})
}

func TestSegmentFile(t *testing.T) {
	const size = 16 << 20
	for text, want := range map[string]string{
		"0/0": "000000020000000000000000", "0/1500718": "000000020000000000000001", "16/B374D848": "0000000200000016000000B3",
		"1/0": "000000020000000100000000",
	} {
		l, err := postgres.ParseLSN(text)
		if err != nil {
			t.Fatal(err)
		}
		got := postgres.SegmentFile(2, l, size)
		if got != want {
			t.Errorf("%s is in %s, want %s", text, got, want)
		}
		if timeline, err := postgres.TimelineOfFile(got); err != nil || timeline != 2 {
			t.Errorf("timeline of %s: %d, %v", got, timeline, err)
		}
	}
	for _, name := range []string{"", "short", "0000000G0000000000000000"} {
		if _, err := postgres.TimelineOfFile(name); err == nil {
			t.Errorf("%q is taken for a file of the log", name)
		}
	}
}

func TestParseHistory(t *testing.T) {
	forks, err := postgres.ParseHistory("1\t0/5000140\tno recovery target specified\n\n# note\n2\t1/A0\tbefore 2026\n")
	want := []postgres.Fork{{Parent: 1, At: 0x5000140}, {Parent: 2, At: 0x1000000A0}}
	if err != nil || !slices.Equal(forks, want) {
		t.Errorf("got %v, %v", forks, err)
	}
	for _, content := range []string{"1", "x 0/0", "1 zero"} {
		if _, err := postgres.ParseHistory(content); err == nil {
			t.Errorf("%q is taken for a history", content)
		}
	}
	if got := postgres.Timeline(26).HistoryFile(); got != "0000001A.history" {
		t.Errorf("history file %s", got)
	}
}

const controlData = `pg_control version number:            1300
Database system identifier:           7713735007909468149
Database cluster state:               shut down in recovery
Latest checkpoint location:           0/1500718
Latest checkpoint's REDO location:    0/1500700
Latest checkpoint's TimeLineID:       3
Time of latest checkpoint:            Sun Nov 29 23:11:27 2026
Minimum recovery ending location:     0/2000000
Min recovery ending loc's timeline:   4
wal_log_hints setting:                on
max_connections setting:              100
max_worker_processes setting:         8
max_wal_senders setting:              10
max_prepared_xacts setting:           0
max_locks_per_xact setting:           64
Bytes per WAL segment:                16777216
Data page checksum version:           1
`

func TestParseControlData(t *testing.T) {
	got, err := postgres.ParseControlData(controlData)
	if err != nil {
		t.Fatal(err)
	}
	if got.SystemID != "7713735007909468149" || got.State != postgres.DataShutDownInRecovery || !got.State.CleanlyStopped() ||
		got.Timeline != 3 || got.LastTimeline() != 4 || got.Checkpoint != 0x1500718 || got.Redo != 0x1500700 ||
		got.MinRecoveryEnd != 0x2000000 || !got.Checksums || !got.WALLogHints || got.SegmentSize != 16<<20 ||
		got.ReplicaLeast["max_locks_per_transaction"] != 64 || got.ReplicaLeast["max_wal_senders"] != 10 {
		t.Errorf("got %+v", got)
	}
	for line := range strings.Lines(controlData) {
		key, _, _ := strings.Cut(line, ":")
		if key == "pg_control version number" || key == "Time of latest checkpoint" {
			continue
		}
		if _, err := postgres.ParseControlData(strings.Replace(controlData, line, "", 1)); err == nil {
			t.Errorf("no error without %q", key)
		}
	}
	if _, err := postgres.ParseControlData(strings.Replace(controlData, "0/1500718", "zero", 1)); err == nil {
		t.Error("no error for a position that is none")
	}
}

// parseConf reads a configuration file by PostgreSQL's grammar: name = 'value', with quotes doubled, and with the
// escapes of C after a backslash.
func parseConf(t *rapid.T, conf string) map[string]string {
	settings := map[string]string{}
	for line := range strings.Lines(conf) {
		name, quoted, found := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		if !found || len(quoted) < 2 || quoted[0] != '\'' || quoted[len(quoted)-1] != '\'' {
			t.Fatalf("line %q is not a setting", line)
		}
		body := quoted[1 : len(quoted)-1]
		var value strings.Builder
		for i := 0; i < len(body); i++ {
			switch body[i] {
			case '\'':
				if i+1 >= len(body) || body[i+1] != '\'' {
					t.Fatalf("the value ends too early in %q", line)
				}
				i++
				value.WriteByte('\'')
			case '\\':
				i++
				if i >= len(body) {
					t.Fatalf("an escape is cut off in %q", line)
				}
				switch body[i] {
				case 'n':
					value.WriteByte('\n')
				case 'r':
					value.WriteByte('\r')
				default:
					value.WriteByte(body[i])
				}
			default:
				value.WriteByte(body[i])
			}
		}
		settings[name] = value.String()
	}
	return settings
}

func TestRenderConfQuotes(t *testing.T) {
	awkward := rapid.StringOf(rapid.OneOf(
		rapid.SampledFrom([]rune("'\\\n\r\t #=%ab\"$")), rapid.Rune().Filter(func(r rune) bool { return r != 0 })))
	rapid.Check(t, func(t *rapid.T) {
		settings := rapid.MapOf(rapid.StringMatching(`[a-z_]{1,8}(\.[a-z_]{1,8})?`), awkward).Draw(t, "settings")
		got := parseConf(t, postgres.RenderConf(settings))
		if len(got) != len(settings) {
			t.Fatalf("%d settings came back, want %d", len(got), len(settings))
		}
		for name, value := range settings {
			if got[name] != value {
				t.Fatalf("%s came back as %q, want %q", name, got[name], value)
			}
		}
	})
}

func TestRenderHBA(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.String()).Draw(t, "lines")
		if got := strings.Count(postgres.RenderHBA(lines), "\n"); got != len(lines) {
			t.Fatalf("%d lines were rendered as %d", len(lines), got)
		}
	})
	if got := postgres.RenderIdent("x\"\npostgres all"); strings.Count(got, "\n") != 1 || strings.Count(got, `"`) != 2 {
		t.Errorf("a user's name gets out of its quotes: %q", got)
	}
}

func TestSettingsHash(t *testing.T) {
	hash := func(user map[string]string, hba []string) string {
		return postgres.SettingsHash(postgres.Settings("17", user), hba)
	}
	base := hash(nil, postgres.HBA("17", nil))
	if hash(map[string]string{}, postgres.HBA("17", nil)) != base {
		t.Error("the same settings have two hashes")
	}
	if more := postgres.SettingsHash(postgres.Settings("17", nil), postgres.HBA("17", nil), "more"); more == base {
		t.Error("what else belongs to settings does not count")
	}
	if hash(map[string]string{"work_mem": "8MB"}, postgres.HBA("17", nil)) == base || hash(nil, nil) == base {
		t.Error("different settings have one hash")
	}
}

func TestSettings(t *testing.T) {
	got := postgres.Settings("17", map[string]string{"Work_Mem": "8MB", "fsync": "off", "wal_keep_size": "1GB"})
	for name, want := range map[string]string{
		"work_mem": "8MB", "fsync": "on", "wal_keep_size": "1GB", "ssl": "on", "allow_alter_system": "off",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	if _, there := postgres.Settings("16", nil)["allow_alter_system"]; there {
		t.Error("allow_alter_system is not known before 17")
	}
	for _, major := range postgres.Majors() {
		for name, value := range postgres.Settings(major, nil) {
			problems := postgres.CheckParameters(major, map[string]string{name: value})
			if len(problems) > 0 && !strings.Contains(problems[0].Detail, "cannot be set") {
				t.Errorf("default of ours in %s: %s %s", major, name, problems[0].Detail)
			}
		}
	}
}

// TestOnVolume: the log never takes more than about a quarter of a volume, and what the user says stays.
func TestOnVolume(t *testing.T) {
	const gi = 1 << 30
	tests := map[string]struct {
		volume int64
		user   map[string]string
		want   string
	}{
		"unknown":   {want: "128MB 128MB 64MB"},
		"1Gi":       {volume: gi, want: "128MB 128MB 64MB"},
		"5Gi":       {volume: 5 * gi, want: "512MB 512MB 128MB"},
		"20Gi":      {volume: 20 * gi, want: "1024MB 2048MB 256MB"},
		"64Ti":      {volume: 65536 * gi, want: "1024MB 6710886MB 256MB"},
		"user's":    {volume: 20 * gi, user: map[string]string{"Max_WAL_size": "4GB"}, want: "4GB 2048MB 256MB"},
		"unlimited": {volume: gi, user: map[string]string{"max_slot_wal_keep_size": "-1"}, want: "128MB -1 64MB"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.user)
			settings := postgres.Settings("17", postgres.OnVolume(test.user, test.volume))
			got := settings["max_wal_size"] + " " + settings["max_slot_wal_keep_size"] + " " + settings["wal_keep_size"]
			if got != test.want || !maps.Equal(before, test.user) {
				t.Errorf("%s, want %s; the user's %v", got, test.want, test.user)
			}
			if problems := postgres.CheckParameters("17", postgres.OnVolume(nil, test.volume)); len(problems) > 0 {
				t.Errorf("refused: %v", problems)
			}
		})
	}
}

func TestKeptLog(t *testing.T) {
	for value, want := range map[string]int64{"1GB": 1 << 30, "512": 512 << 20, "0": 0, "lots": 0, "-1": -1} {
		most, limited := postgres.KeptLog("17", map[string]string{"MAX_slot_wal_keep_size": value})
		if limited != (want >= 0) || limited && most != want {
			t.Errorf("%s: %d, limited %v", value, most, limited)
		}
	}
	if most, limited := postgres.KeptLog("17", map[string]string{"work_mem": "-1"}); most != 0 || !limited {
		t.Error("another setting counts")
	}
}

// TestSettingsLoad has a real PostgreSQL read our settings, where there is one.
func TestSettingsLoad(t *testing.T) {
	program, version := realPostgres(t)
	conf := filepath.Join(t.TempDir(), "postgresql.conf")
	settings := postgres.Settings(version.Major, map[string]string{"log_line_prefix": `it's \ 'awkward' `, "my.own": "x"})
	if err := os.WriteFile(conf, []byte(postgres.RenderConf(settings)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"log_line_prefix": `it's \ 'awkward' `, "my.own": "x", "wal_sender_timeout": "5000"} {
		out, err := exec.CommandContext(t.Context(), program, "-C", name, "-D", filepath.Dir(conf)).Output()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
			t.Errorf("%s = %q, want %q: %v", name, got, want, err)
		}
	}
}

// realPostgres finds the server's program.
func realPostgres(t *testing.T) (program string, version postgres.ServerVersion) {
	t.Helper()
	program, err := exec.LookPath("postgres")
	if err != nil {
		found, globErr := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		if globErr != nil || len(found) == 0 {
			t.Skip("there is no program postgres to ask")
		}
		program = found[len(found)-1]
	}
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, err = postgres.ParseServerVersion(string(out))
	if err != nil {
		t.Fatal(err)
	}
	return program, version
}
