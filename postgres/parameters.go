package postgres

import (
	_ "embed"
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
}

// maxValue is the most bytes a value may have; the longest sensible ones are lists of libraries.
const maxValue = 4096

// parameterName is what a configuration file accepts as the name of a setting: at most one dot, between the name
// of an extension and the name of its setting.
var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// CheckParameters lists what is wrong with a user's settings for a major version, sorted by name. Settings that the
// catalogue does not know are accepted if well-formed: PostgreSQL judges them, and the agent reports its verdict.
func CheckParameters(major string, user map[string]string) []ParameterProblem {
	var problems []ParameterProblem
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(user)) {
		lower := strings.ToLower(name)
		detail := checkParameter(major, lower, user[name])
		if other, twice := seen[lower]; twice {
			detail = fmt.Sprintf("is the same setting as %s, because case does not matter; keep one of them", other)
		}
		seen[lower] = name
		if detail != "" {
			problems = append(problems, ParameterProblem{Name: name, Detail: detail})
		}
	}
	return problems
}

func checkParameter(major, name, value string) string {
	switch {
	case len(name) > 127 || !parameterName.MatchString(name):
		return "is not the name of a setting; a name has letters, digits and underscores, " +
			"and one dot after the name of an extension, such as work_mem or pg_stat_statements.max"
	case reservedReason(name) != "":
		return "cannot be set: " + reservedReason(name)
	case len(value) > maxValue:
		return fmt.Sprintf("has a value of %d bytes; at most %d are accepted", len(value), maxValue)
	case strings.ContainsRune(value, 0):
		return "has a NUL byte in its value; PostgreSQL cannot store one"
	case name == "wal_level" && strings.EqualFold(value, "minimal"):
		return `cannot be "minimal", because replicas and backups need the log; use replica or logical`
	}
	p, verdict := lookup(major, name)
	switch verdict {
	case known:
		return p.check(value)
	case otherMajor:
		return fmt.Sprintf("is not a setting of PostgreSQL %s (%s); leave it out", major, p.majors())
	default:
		return ""
	}
}

// parameter is one line of the catalogue.
type parameter struct {
	name, kind, unit string
	least, most      string
	values           []string
	since, until     string
}

func (p parameter) in(major string) bool {
	return (p.since == "" || CompareMajor(major, p.since) >= 0) && (p.until == "" || CompareMajor(major, p.until) <= 0)
}

func (p parameter) majors() string {
	if p.since != "" {
		return "it came with " + p.since
	}
	return p.until + " was the last that had it"
}

//go:embed catalogue.tsv
var catalogueText string

var catalogue = parseCatalogue(catalogueText)

func parseCatalogue(text string) map[string][]parameter {
	byName := map[string][]parameter{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		p := parameter{name: f[0], kind: f[1], unit: f[2], least: f[3], most: f[4], since: f[6], until: f[7]}
		if f[5] != "" {
			p.values = strings.Split(f[5], ",")
		}
		byName[p.name] = append(byName[p.name], p)
	}
	return byName
}

type verdict int

const (
	unknown verdict = iota
	known
	otherMajor
)

func lookup(major, name string) (parameter, verdict) {
	versions := catalogue[name]
	for _, p := range versions {
		if p.in(major) {
			return p, known
		}
	}
	if len(versions) > 0 {
		return versions[0], otherMajor
	}
	return parameter{}, unknown
}
