// Package postgres is what the operator and the agents both know of
// PostgreSQL: versions, settings, client authentication, log positions and the
// control file. It uses only the standard library and does no input or output.
package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Majors are the major versions of PostgreSQL that are supported, oldest first.
func Majors() []string { return []string{"15", "16", "17", "18"} }

// CompareMajor orders two major versions as slices.SortFunc wants it. What is not a number comes first.
func CompareMajor(a, b string) int {
	return cmp.Or(cmp.Compare(majorNumber(a), majorNumber(b)), strings.Compare(a, b))
}

func majorNumber(major string) int {
	n, err := strconv.Atoi(major)
	if err != nil {
		return -1
	}
	return n
}

// ServerVersion is the version of PostgreSQL's programs.
type ServerVersion struct {
	// Major, such as "17".
	Major string
	// Full version, such as "17.6", "18beta2" or "19devel".
	Full string
}

// ParseServerVersion reads the output of `postgres --version`.
func ParseServerVersion(output string) (ServerVersion, error) {
	fields := strings.Fields(output)
	i := slices.Index(fields, "(PostgreSQL)")
	if i < 0 || i+1 >= len(fields) {
		return ServerVersion{}, fmt.Errorf("no version of PostgreSQL in %q", strings.TrimSpace(output))
	}
	full := fields[i+1]
	digits := strings.IndexFunc(full, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(full)
	}
	if digits == 0 {
		return ServerVersion{}, fmt.Errorf("version %q does not begin with a number", full)
	}
	return ServerVersion{Major: full[:digits], Full: full}, nil
}
