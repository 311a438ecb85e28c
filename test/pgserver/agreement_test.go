package pgserver_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/pgserver"
)

// environment are settings whose values depend on more than the version: they may be accepted by us and refused by a
// server. Its agent then leaves them out and reports them.
var environment = map[string]string{
	"timezone":                  "names of files in the image",
	"log_timezone":              "names of files in the image",
	"timezone_abbreviations":    "names of files in the image",
	"lc_messages":               "locales of the image",
	"lc_monetary":               "locales of the image",
	"lc_numeric":                "locales of the image",
	"lc_time":                   "locales of the image",
	"max_stack_depth":           "the stack that the kernel allows the process",
	"default_toast_compression": "lz4 is a choice of the build",
	"wal_compression":           "lz4 and zstd are choices of the build",
	"io_method":                 "io_uring is a choice of the build",
}

// stricter are settings of which we refuse values that a server takes.
var stricter = map[string]string{
	"max_connections":                "room for the agents; reserved connections, which a server counts when it starts",
	"max_replication_slots":          "room for the agents",
	"max_wal_senders":                "room for the agents; processes, which version 18 counts when it starts",
	"max_worker_processes":           "processes, which version 18 counts when it starts",
	"autovacuum_worker_slots":        "processes, which version 18 counts when it starts",
	"autovacuum_max_workers":         "processes, of which we count one more than versions before 17",
	"superuser_reserved_connections": "room for the agents; a server counts when it starts",
	"reserved_connections":           "a server counts when it starts",
	"max_files_per_process":          "a server counts its files when it starts",
	"min_wal_size":                   "a server compares it with its files when it starts",
	"max_wal_size":                   "a server compares it with its files when it starts",
	"wal_level":                      "minimal ends replication",
	"ssl_min_protocol_version":       "versions of TLS that are broken",
}

// exclusive are groups of settings whose values a server compares with each other: one of a group at a time is tried.
var exclusive = [][]string{
	pgserver.Quiet,
	{"log_statement_stats", "log_parser_stats", "log_planner_stats", "log_executor_stats"},
	processes,
}

// processes have a common limit, which only large numbers reach.
var (
	processes   = []string{"max_connections", "max_wal_senders", "max_worker_processes", "autovacuum_max_workers"}
	largeNumber = regexp.MustCompile(`[0-9a-f.]{5}`)
)

// exclusiveGroup is the index of the group that a value belongs to; negative if there is none. A server that refuses a
// number does not count it.
func exclusiveGroup(major, name, value string) int {
	if slices.Contains(processes, name) &&
		(!largeNumber.MatchString(value) || len(postgres.CheckParameters(major, map[string]string{name: value})) > 0) {
		return -1
	}
	return slices.IndexFunc(exclusive, func(names []string) bool { return slices.Contains(names, name) })
}

// TestVerdictsAgree compares our verdict on many values of every setting with the server's.
func TestVerdictsAgree(t *testing.T) {
	eachServer(t, func(t *testing.T, server pgserver.Server) {
		settings, err := server.Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		major := server.Version.Major
		candidates, owned := map[string][]string{}, 0
		for _, s := range settings {
			problems := postgres.CheckParameters(major, map[string]string{s.Name: s.Default})
			switch {
			case len(problems) > 0 && strings.HasPrefix(problems[0].Detail, "cannot be set"):
				owned++
			case s.Name != "extension_destdir": // Debian's own.
				candidates[s.Name] = valuesFor(s, settings)
			}
		}
		tried := len(candidates)
		files := pack(major, candidates)
		verdicts, err := server.Judge(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		compared, refusals := 0, 0
		for i, file := range files {
			for name, value := range file {
				theirs, refused := verdicts[i][name]
				problems := postgres.CheckParameters(major, map[string]string{name: value})
				compared++
				switch {
				case refused:
					refusals++
					if len(problems) == 0 && environment[name] == "" {
						t.Errorf("%s = %q: accepted by us, refused by PostgreSQL: %s", name, value, theirs)
					}
				case len(problems) > 0:
					if stricter[name] == "" && value != binary {
						t.Errorf("%s = %q: accepted by PostgreSQL, refused by us: %s", name, value, problems[0].Detail)
					}
				}
			}
		}
		t.Logf("PostgreSQL %s: %d values of %d settings compared, %d of them refused, in %d files; %d settings are not for users",
			server.Version.Full, compared, tried, refusals, len(files), owned)
		if tried < 220 || compared < 20000 || refusals < compared/10 {
			t.Error("that is too little to prove anything")
		}
	})
}

// pack spreads values over configuration files, each with one value of a setting at most.
func pack(major string, candidates map[string][]string) []map[string]string {
	var files []map[string]string
	for len(candidates) > 0 {
		file, taken := map[string]string{}, map[int]bool{}
		for name, values := range candidates {
			group := exclusiveGroup(major, name, values[0])
			if group >= 0 && taken[group] {
				continue
			}
			taken[group] = true
			if file[name] = values[0]; len(values) == 1 {
				delete(candidates, name)
			} else {
				candidates[name] = values[1:]
			}
		}
		files = append(files, file)
	}
	return files
}
