package postgres_test

import (
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
		"unknown":              {name: "some_new_setting", value: "1", want: "is not a setting of PostgreSQL 15"},
		"typo":                 {name: "work_men", value: "8MB", want: "did you mean work_mem?"},
		"letters swapped":      {name: "work_mme", value: "8MB", want: "did you mean work_mem?"},
		"underscore missing":   {name: "sharedbuffers", value: "1GB", want: "did you mean shared_buffers?"},
		"dash":                 {name: "shared-buffers", value: "1GB", want: "did you mean shared_buffers?"},
		"former name":          {name: "checkpoint_segments", value: "8", want: "did you mean max_wal_size?"},
		"nothing near":         {name: "buffers", value: "1", want: "and a dot before it, such as pg_stat_statements.max"},
		"developers'":          {name: "trace_sort", value: "on", want: "for PostgreSQL's developers"},
		"library for sessions": {name: "session_preload_libraries", value: "auto_explain", want: "use shared_preload_libraries"},
		"library path":         {name: "dynamic_library_path", value: "/tmp", want: "an image of your own"},
		"program":              {name: "ssl_passphrase_command", value: "id", want: "TLS is always on"},
		"program at the end":   {name: "recovery_end_command", value: "id", want: "who recovers"},
		"everybody's objects":  {name: "lo_compat_privileges", value: "on", want: "GRANT ON LARGE OBJECT"},
		"two files of log":     {name: "min_wal_size", value: "31MB", want: "between 32MB and"},
		"a bank of buffers":    {major: "17", name: "transaction_buffers", value: "1000", want: "multiple of 16"},
		"hidden value":         {name: "wal_level", value: "hot_standby"},
		"another build's":      {major: "18", name: "io_method", value: "io_uring"},
		"backported":           {major: "18", name: "output_plugin_libraries", value: "pgoutput, wal2json"},
		"words":                {major: "18", name: "log_connections", value: "all, none", want: "of: all, receipt"},
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

func TestRelations(t *testing.T) {
	for name, tc := range map[string]struct {
		major string
		user  map[string]string
		// blamed is the setting that is refused; empty for none.
		blamed string
	}{
		"reserved fit":              {major: "16", user: map[string]string{"max_connections": "20", "reserved_connections": "16"}},
		"reserved do not fit":       {major: "16", user: map[string]string{"max_connections": "20", "reserved_connections": "17"}, blamed: "reserved_connections"},
		"only the total is given":   {major: "15", user: map[string]string{"superuser_reserved_connections": "100"}, blamed: "superuser_reserved_connections"},
		"by the user's own name":    {major: "15", user: map[string]string{"Max_Connections": "10", "Superuser_reserved_connections": "10"}, blamed: "Superuser_reserved_connections"},
		"refused on its own":        {major: "15", user: map[string]string{"max_connections": "1"}, blamed: "max_connections"},
		"processes":                 {major: "17", user: map[string]string{"max_worker_processes": "131072", "max_connections": "131072"}, blamed: "max_connections"},
		"workers have slots now":    {major: "18", user: map[string]string{"autovacuum_max_workers": "262143"}},
		"workers had no slots":      {major: "17", user: map[string]string{"autovacuum_max_workers": "262143"}, blamed: "autovacuum_max_workers"},
		"statistics of a part":      {major: "17", user: map[string]string{"log_parser_stats": "on", "log_statement_stats": "off"}},
		"statistics of all and one": {major: "17", user: map[string]string{"log_parser_stats": "yes", "log_statement_stats": "1"}, blamed: "log_statement_stats"},
	} {
		t.Run(name, func(t *testing.T) {
			var blamed []string
			for _, problem := range postgres.CheckParameters(tc.major, tc.user) {
				blamed = append(blamed, problem.Name)
			}
			if strings.Join(blamed, " ") != tc.blamed {
				t.Errorf("refused %q, want %q", blamed, tc.blamed)
			}
		})
	}
}

// TestOwnSettingsAreKnown holds what the operator sets itself against the catalogue.
func TestOwnSettingsAreKnown(t *testing.T) {
	for _, major := range postgres.Majors() {
		for name, value := range postgres.Settings(major, nil) {
			problems := postgres.CheckParameters(major, map[string]string{name: value})
			if len(problems) > 0 && !strings.HasPrefix(problems[0].Detail, "cannot be set: ") {
				t.Errorf("%s = %q on %s: %s", name, value, major, problems[0].Detail)
			}
		}
	}
}
