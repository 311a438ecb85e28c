package postgres_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/acme/pg-operator/postgres"
)

func TestCheckParameters(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, tc := range map[string]struct {
		major, name, value string
		// want is a part of the detail; empty if the setting is accepted.
		want string
	}{
		"plain integer":        {name: "max_connections", value: "200"},
		"memory with unit":     {name: "shared_buffers", value: "1.5 GB"},
		"memory without unit":  {name: "shared_buffers", value: "16384"},
		"hexadecimal":          {name: "max_connections", value: "0x80"},
		"octal":                {name: "max_connections", value: "0200"},
		"time":                 {name: "statement_timeout", value: "5min"},
		"time as fraction":     {name: "statement_timeout", value: "0.5s"},
		"negative switch":      {name: "log_min_duration_statement", value: "-1"},
		"real":                 {name: "random_page_cost", value: "1.1"},
		"real with exponent":   {name: "random_page_cost", value: "11e-1"},
		"real with unit":       {name: "vacuum_cost_delay", value: "2ms"},
		"bool":                 {name: "autovacuum", value: "off"},
		"bool shortened":       {name: "autovacuum", value: "tr"},
		"enum":                 {name: "synchronous_commit", value: "Remote_Apply"},
		"enum as bool":         {name: "synchronous_commit", value: "true"},
		"string":               {name: "shared_preload_libraries", value: "pg_stat_statements"},
		"extension":            {name: "pg_stat_statements.max", value: "10000"},
		"mixed case":           {name: "TimeZone", value: "Europe/Zurich"},
		"wal_level":            {name: "wal_level", value: "logical"},
		"newer TLS":            {name: "ssl_min_protocol_version", value: "TLSv1.3"},
		"recovery tuning":      {name: "recovery_prefetch", value: "off"},
		"new in 17":            {major: "17", name: "transaction_timeout", value: "1min"},
		"new in 18":            {major: "18", name: "io_method", value: "worker"},
		"list since 18":        {major: "18", name: "log_connections", value: "receipt,authorization"},
		"lower minimum in 17":  {major: "17", name: "maintenance_work_mem", value: "64kB"},
		"no number":            {name: "max_connections", value: "many", want: "must be a whole number"},
		"fraction cut":         {name: "max_connections", value: "1e", want: "must be a whole number"},
		"empty":                {name: "max_connections", value: "", want: "must be a whole number"},
		"not octal":            {name: "max_connections", value: "099", want: "must be a whole number"},
		"too small":            {name: "shared_buffers", value: "8kB", want: "between 16 (blocks of 8kB)"},
		"too large":            {name: "random_page_cost", value: "1e400", want: "must be"},
		"too few senders":      {name: "max_wal_senders", value: "2", want: "between 10 and"},
		"unit of time":         {name: "shared_buffers", value: "5min", want: `"min" is not such a unit`},
		"unit in wrong case":   {name: "shared_buffers", value: "5mb", want: "case matters"},
		"unit where none is":   {name: "max_connections", value: "5MB", want: "is not such a unit"},
		"not bool":             {name: "autovacuum", value: "o", want: "must be on or off"},
		"not in enum":          {name: "synchronous_commit", value: "maybe", want: "must be one of local, remote_write"},
		"older TLS":            {name: "ssl_min_protocol_version", value: "TLSv1", want: "must be one of TLSv1.2"},
		"not yet there":        {major: "16", name: "transaction_timeout", value: "1", want: "it came with 17"},
		"gone":                 {major: "17", name: "old_snapshot_threshold", value: "1", want: "16 was the last"},
		"32 blocks in 17":      {major: "17", name: "io_combine_limit", value: "64", want: "between 1"},
		"reserved":             {name: "listen_addresses", value: "*", want: "NetworkPolicy"},
		"reserved in capitals": {name: "FSYNC", value: "off", want: "synchronous_commit"},
		"reserved by prefix":   {name: "ssl_cert_file", value: "x", want: "TLS is always on"},
		"archiving":            {name: "archive_command", value: "rm %p", want: "archiving"},
		"recovery":             {name: "recovery_target_xid", value: "1", want: "who recovers"},
		"include":              {name: "include", value: "/etc/passwd", want: "another file"},
		"preset":               {name: "server_version", value: "1", want: "only shows it"},
		"minimal":              {name: "wal_level", value: "Minimal", want: "replica or logical"},
		"line feed in name":    {name: "a = 1\nfsync", value: "off", want: "is not the name of a setting"},
		"space in name":        {name: "work mem", value: "1", want: "is not the name of a setting"},
		"two dots":             {name: "a.b.c", value: "1", want: "is not the name of a setting"},
		"empty name":           {name: "", value: "1", want: "is not the name of a setting"},
		"NUL":                  {name: "search_path", value: "a\x00b", want: "NUL"},
		"long value":           {name: "search_path", value: long, want: "5000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			major := tc.major
			if major == "" {
				major = "15"
			}
			problems := postgres.CheckParameters(major, map[string]string{tc.name: tc.value})
			switch {
			case tc.want == "" && len(problems) > 0:
				t.Errorf("refused: %s", problems[0].Detail)
			case tc.want != "" && len(problems) == 0:
				t.Error("accepted")
			case tc.want != "" && (problems[0].Name != tc.name || !strings.Contains(problems[0].Detail, tc.want)):
				t.Errorf("%s %s, want %q", problems[0].Name, problems[0].Detail, tc.want)
			}
		})
	}
}

func TestCheckParametersSorted(t *testing.T) {
	got := postgres.CheckParameters("17", map[string]string{"port": "1", "fsync": "off", "Work_mem": "1MB", "work_mem": "2MB"})
	var names []string
	for _, problem := range got {
		names = append(names, problem.Name)
	}
	if strings.Join(names, " ") != "fsync port work_mem" || !strings.Contains(got[2].Detail, "same setting as Work_mem") {
		t.Errorf("got %v", got)
	}
}

// TestCheckParametersAgrees compares verdicts with those of a real PostgreSQL, where there is one.
func TestCheckParametersAgrees(t *testing.T) {
	program, version := realPostgres(t)
	conf := filepath.Join(t.TempDir(), "postgresql.conf")
	for _, setting := range [][2]string{
		{"max_connections", "0x80"},
		{"max_connections", "0200"},
		{"max_connections", "099"},
		{"max_connections", "120.4"},
		{"max_connections", "1e2"},
		{"max_connections", "5MB"},
		{"max_connections", ""},
		{"max_connections", " 120 "},
		{"max_connections", "262144"},
		{"max_connections", "12_0"},
		{"shared_buffers", "1.5 GB"},
		{"shared_buffers", "5mb"},
		{"shared_buffers", "128"},
		{"shared_buffers", "15"},
		{"shared_buffers", "64 kB"},
		{"shared_buffers", "1TBx"},
		{"statement_timeout", "5 min"},
		{"statement_timeout", "2d"},
		{"statement_timeout", "-1"},
		{"statement_timeout", "30d"},
		{"random_page_cost", "1.1"},
		{"random_page_cost", "x"},
		{"random_page_cost", "-1"},
		{"random_page_cost", ".5"},
		{"vacuum_cost_delay", "2ms"},
		{"vacuum_cost_delay", "200ms"},
		{"autovacuum", "o"},
		{"autovacuum", "of"},
		{"autovacuum", "ON"},
		{"autovacuum", "yess"},
		{"autovacuum", "2"},
		{"synchronous_commit", "yes"},
		{"synchronous_commit", "y"},
		{"synchronous_commit", "Remote_Apply"},
		{"wal_level", "hot"},
		{"huge_pages", "try"},
		{"log_min_messages", "debug"},
		{"client_min_messages", "fatal"},
		{"bytea_output", "hexx"},
	} {
		name, value := setting[0], setting[1]
		refused := len(postgres.CheckParameters(version.Major, map[string]string{name: value})) > 0
		content := postgres.RenderConf(map[string]string{name: value})
		if err := os.WriteFile(conf, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "-C", name, "-D", filepath.Dir(conf)).CombinedOutput()
		if refused != (err != nil) {
			t.Errorf("%s = %q: refused by us %t, by PostgreSQL %t: %s", name, value, refused, err != nil, out)
		}
	}
}
