package postgres

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ParameterProblem says why one of the user's settings is refused.
type ParameterProblem struct {
	// Name as the user wrote it.
	Name string
	// Detail says what is wrong and what would be accepted.
	Detail string
	// With are other settings that the verdict depends on, in lower case.
	With []string
	// Harmless is set where a running cluster copes: its agents leave the setting out, or go back to the last settings
	// that worked, and report it. A new cluster or a change is refused all the same.
	Harmless bool
}

// maxValue is the most bytes a value may have; the longest sensible ones are lists of libraries.
const maxValue = 4096

// parameterName is what a configuration file accepts as the name of a setting: at most one dot, between the name
// of an extension and the name of its setting.
var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// CheckParameters lists what is wrong with a user's settings for a major version, sorted by name. Settings of
// extensions (with a dot) are accepted if well-formed: only a server that loaded the extension knows them.
func CheckParameters(major string, user map[string]string) []ParameterProblem {
	var problems []ParameterProblem
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(user)) {
		lower := strings.ToLower(name)
		problem := checkParameter(major, lower, user[name])
		if other, twice := seen[lower]; twice {
			problem = ParameterProblem{
				Detail: fmt.Sprintf("is the same setting as %s, because case does not matter; keep one of them", other),
			}
		}
		seen[lower] = name
		if problem.Detail != "" {
			problem.Name = name
			problems = append(problems, problem)
		}
	}
	problems = append(problems, checkRelations(major, user, problems)...)
	slices.SortStableFunc(problems, func(a, b ParameterProblem) int { return strings.Compare(a.Name, b.Name) })
	return problems
}

func checkParameter(major, name, value string) ParameterProblem {
	stopping := func(detail string) ParameterProblem { return ParameterProblem{Detail: detail} }
	switch {
	case len(name) > 127 || !parameterName.MatchString(name):
		return stopping("is not the name of a setting; a name has letters, digits and underscores, " +
			"and one dot after the name of an extension, such as work_mem or pg_stat_statements.max" + didYouMean(major, name))
	case reservedReason(name) != "":
		return stopping("cannot be set: " + reservedReason(name))
	case len(value) > maxValue:
		return stopping(fmt.Sprintf("has a value of %d bytes; at most %d are accepted", len(value), maxValue))
	case strings.ContainsRune(value, 0):
		return stopping("has a NUL byte in its value; PostgreSQL cannot store one")
	case name == "wal_level" && strings.EqualFold(value, "minimal"):
		return stopping(`cannot be "minimal", because replicas and backups need the log; use replica or logical`)
	case strings.Contains(name, "."):
		return ParameterProblem{}
	}
	return ParameterProblem{
		Detail: checkKnown(major, name, value), Harmless: operatorLeast[name] == "" && operatorValues[name] == nil,
	}
}

// checkKnown judges a setting by the catalogue.
func checkKnown(major, name, value string) string {
	p, verdict := lookup(major, name)
	if reason := refusal(p); verdict != unknown && reason != "" {
		return "cannot be set: " + reason
	}
	switch verdict {
	case known:
		return p.check(value)
	case otherMajor:
		return fmt.Sprintf("is not a setting of PostgreSQL %s (%s); leave it out", major, p.majors())
	}
	detail := "is not a setting of PostgreSQL " + major
	if meant := didYouMean(major, name); meant != "" {
		return detail + meant
	}
	return detail + "; one of an extension has the extension's name and a dot before it, such as pg_stat_statements.max"
}

func didYouMean(major, name string) string {
	if len(name) > 127 {
		return ""
	}
	if meant := suggest(major, name); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}
