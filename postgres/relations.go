package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// relation is a rule about several settings, without which a server does not start or takes none of them.
type relation struct {
	// settings that it is about, the one to blame first.
	settings []string
	// broken says what is wrong with the values; empty if nothing is.
	broken func(e effective) string
}

// mostBackends is how many processes PostgreSQL can number (MAX_BACKENDS, 2^18-1).
const mostBackends = 1<<18 - 1

var relations = []relation{
	{
		settings: []string{"superuser_reserved_connections", "reserved_connections", "max_connections"},
		broken: func(e effective) string {
			reserved := e.number("superuser_reserved_connections") + e.number("reserved_connections")
			if all := e.number("max_connections"); reserved >= all {
				return fmt.Sprintf("does not fit: superuser_reserved_connections and reserved_connections reserve %.0f of %.0f "+
					"max_connections; reserve fewer, or raise max_connections", reserved, all)
			}
			return ""
		},
	},
	{
		settings: []string{
			"max_connections", "max_worker_processes", "max_wal_senders", "autovacuum_worker_slots", "autovacuum_max_workers",
		},
		broken: func(e effective) string {
			workers := "autovacuum_max_workers"
			if CompareMajor(e.major, "18") >= 0 {
				workers = "autovacuum_worker_slots"
			}
			// Each may be as large as mostBackends; the launcher of autovacuum and of slot synchronisation come on top.
			sum := e.number("max_connections") + e.number("max_worker_processes") + e.number("max_wal_senders") + e.number(workers) + 2
			if sum > mostBackends {
				return fmt.Sprintf("is too large: max_connections, max_worker_processes, max_wal_senders and %s make %.0f processes; "+
					"PostgreSQL can have %d", workers, sum, mostBackends)
			}
			return ""
		},
	},
	{
		settings: []string{"log_statement_stats", "log_parser_stats", "log_planner_stats", "log_executor_stats"},
		broken: func(e effective) string {
			parts := []string{"log_parser_stats", "log_planner_stats", "log_executor_stats"}
			if e.on("log_statement_stats") && slices.ContainsFunc(parts, e.on) {
				return "excludes log_parser_stats, log_planner_stats and log_executor_stats; use it or them"
			}
			return ""
		},
	},
}

// checkRelations judges settings together as a server would have them: the user's, the operator's and PostgreSQL's own.
// A relation with a setting that is refused already is left out.
func checkRelations(major string, user map[string]string, refused []ParameterProblem) []ParameterProblem {
	given := map[string]string{}
	for name := range user {
		given[strings.ToLower(name)] = name
	}
	for _, problem := range refused {
		given[strings.ToLower(problem.Name)] = ""
	}
	var problems []ParameterProblem
	e := effective{major: major, values: Settings(major, user)}
	for _, r := range relations {
		blamed, bad := "", false
		for _, name := range r.settings {
			original, set := given[name]
			bad = bad || set && original == ""
			if blamed == "" {
				blamed = original
			}
		}
		if blamed == "" || bad {
			continue
		}
		if detail := r.broken(e); detail != "" {
			problems = append(problems, ParameterProblem{Name: blamed, Detail: detail, With: r.settings, Harmless: true})
		}
	}
	return problems
}

// effective are all settings that a server would run with.
type effective struct {
	major  string
	values map[string]string
}

func (e effective) value(name string) string {
	if value, set := e.values[name]; set {
		return value
	}
	p, _ := lookup(e.major, name)
	return p.standard
}

// number is the value of a setting in its unit; 0 if the major version has no such setting.
func (e effective) number(name string) float64 {
	p, verdict := lookup(e.major, name)
	if verdict != known {
		return 0
	}
	number, _ := p.number(e.value(name))
	return number
}

func (e effective) on(name string) bool {
	on, _ := parseBool(e.value(name))
	return on
}
