package pgserver_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/pgserver"
)

// resources are settings whose largest values need more than some machines have, above all memory, and large values
// that every machine carries. A server that does not start goes back to the settings that it had.
var resources = map[string]string{
	"autovacuum_max_workers":         "50",
	"autovacuum_worker_slots":        "50",
	"commit_timestamp_buffers":       "1024",
	"huge_page_size":                 "0",
	"huge_pages":                     "off",
	"io_max_concurrency":             "64",
	"max_active_replication_origins": "1000",
	"max_connections":                "500",
	"max_locks_per_transaction":      "1000",
	"max_notify_queue_pages":         "1048576",
	"max_pred_locks_per_transaction": "1000",
	"max_prepared_transactions":      "500",
	"max_replication_slots":          "1000",
	"max_stack_depth":                "2MB",
	"max_wal_senders":                "100",
	"max_worker_processes":           "100",
	"min_dynamic_shared_memory":      "16MB",
	"multixact_member_buffers":       "1024",
	"multixact_offset_buffers":       "1024",
	"notify_buffers":                 "1024",
	"serializable_buffers":           "1024",
	"shared_buffers":                 "64MB",
	"subtransaction_buffers":         "1024",
	"track_activity_query_size":      "16384",
	"transaction_buffers":            "1024",
	"wal_buffers":                    "16MB",
	"wal_decode_buffer_size":         "16MB",
}

// noise are settings that would fill the log, or keep the reason out of it.
var noise = append([]string{"client_min_messages", "log_min_error_statement"}, pgserver.Quiet...)

// TestAcceptedSettingsStart starts servers with the smallest, the largest and other values of all settings at once, as
// far as we accept them together.
func TestAcceptedSettingsStart(t *testing.T) {
	eachServer(t, func(t *testing.T, server pgserver.Server) {
		settings, err := server.Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		major := server.Version.Major
		var files []map[string]string
		for round := range 4 {
			user := map[string]string{}
			for _, s := range settings {
				if values := extremes(s); len(values) > 0 && !slices.Contains(noise, s.Name) {
					user[s.Name] = values[round%len(values)]
				}
			}
			files = append(files, accepted(t, major, user))
		}
		logs, err := server.Start(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		for i, log := range logs {
			if log != "" {
				t.Errorf("with %v:\n%s", files[i], log)
			}
		}
	})
}

// accepted leaves out what admission refuses and adds what the operator sets.
func accepted(t *testing.T, major string, user map[string]string) map[string]string {
	t.Helper()
	user = maps.Clone(user)
	for problems := postgres.CheckParameters(major, user); len(problems) > 0; problems = postgres.CheckParameters(major, user) {
		for _, problem := range problems {
			delete(user, problem.Name)
		}
	}
	if len(user) < 150 {
		t.Fatalf("only %d settings are accepted", len(user))
	}
	return postgres.Settings(major, user)
}

// extremes are values of a setting that stand for all.
func extremes(s pgserver.Setting) []string {
	switch s.Type {
	case "bool":
		return []string{"on", "off"}
	case "integer", "real":
		return []string{cmp.Or(resources[s.Name], s.Max), s.Min}
	case "enum":
		if resources[s.Name] != "" {
			return []string{resources[s.Name]}
		}
		return s.Values
	default:
		return nil
	}
}

// TestRefusedSettingsDoNotStart proves what no server says before it starts: the rules about several settings, and
// bounds of ours.
func TestRefusedSettingsDoNotStart(t *testing.T) {
	cases := []struct {
		since    string
		settings map[string]string
	}{
		{settings: map[string]string{"max_connections": "10", "superuser_reserved_connections": "10"}},
		{since: "16", settings: map[string]string{"max_connections": "20", "reserved_connections": "17"}},
		{settings: map[string]string{"max_connections": "262130"}},
		{settings: map[string]string{"log_statement_stats": "on", "log_parser_stats": "on"}},
		{settings: map[string]string{"min_wal_size": "31MB"}},
		{settings: map[string]string{"max_wal_size": "31MB"}},
	}
	eachServer(t, func(t *testing.T, server pgserver.Server) {
		major := server.Version.Major
		var files []map[string]string
		for _, c := range cases {
			if c.since != "" && postgres.CompareMajor(major, c.since) < 0 {
				continue
			}
			if len(postgres.CheckParameters(major, c.settings)) == 0 {
				t.Errorf("%v: accepted by us", c.settings)
			}
			file := postgres.Settings(major, nil)
			maps.Copy(file, c.settings)
			files = append(files, file)
		}
		logs, err := server.Start(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		for i, log := range logs {
			if log == "" {
				t.Errorf("PostgreSQL starts with %v", files[i])
			}
		}
	})
}
