package postgres

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// operatorLeast are smallest values of ours: room for the agents, and for replicas, clones, rewinds and backups of five
// instances.
var operatorLeast = map[string]string{
	"max_connections":                "10",
	"max_replication_slots":          "10",
	"max_wal_senders":                "10",
	"superuser_reserved_connections": "2",
}

// serverLeast are smallest values below which a server does not start, although pg_settings has a smaller one: two
// files of write-ahead log, and the files that a server has open before it serves anybody, with a margin.
var serverLeast = map[string]string{
	"max_files_per_process": "128",
	"max_wal_size":          "32",
	"min_wal_size":          "32",
}

// operatorValues are the values of enumerations that are not refused for what they do.
var operatorValues = map[string][]string{
	"ssl_min_protocol_version": {"TLSv1.2", "TLSv1.3"},
	"wal_level":                {"replica", "logical"},
}

// check says what is wrong with a value, in PostgreSQL's own grammar; empty if nothing is.
func (p parameter) check(value string) string {
	switch p.kind {
	case "bool":
		if _, ok := parseBool(value); !ok {
			return fmt.Sprintf("must be on or off, not %q", shorten(value))
		}
	case "enum":
		return p.checkEnum(value)
	case "integer", "real":
		return p.checkNumber(value)
	case "string":
		return p.checkText(value)
	}
	return ""
}

// shorten keeps the texts of errors readable.
func shorten(value string) string {
	if len(value) > 40 {
		return value[:37] + "..."
	}
	return value
}

// parseBool accepts what PostgreSQL does: any unique beginning of true, false, yes, no, on, off, and 1 and 0.
func parseBool(value string) (on, ok bool) {
	v := strings.ToLower(value)
	if v == "" || v == "o" {
		return false, false
	}
	for _, word := range []string{"true", "yes", "on", "1", "false", "no", "off", "0"} {
		if strings.HasPrefix(word, v) {
			return slices.Contains([]string{"true", "yes", "on", "1"}, word), true
		}
	}
	return false, false
}

func (p parameter) checkEnum(value string) string {
	values, further := p.values, p.further
	if ours := operatorValues[p.name]; ours != nil {
		values = ours
	}
	same := func(s string) bool { return strings.EqualFold(s, value) }
	if slices.ContainsFunc(values, same) || slices.ContainsFunc(further, same) {
		return ""
	}
	return fmt.Sprintf("must be one of %s, not %q", strings.Join(values, ", "), shorten(value))
}

var numberWithUnit = regexp.MustCompile(`^\s*([+-]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))\s*([A-Za-z]*)\s*$`)

func (p parameter) checkNumber(value string) string {
	number, wrong := p.number(value)
	if wrong != "" {
		return wrong
	}
	least := cmp.Or(operatorLeast[p.name], serverLeast[p.name], p.least)
	if bound(least) <= number && number <= bound(p.most) {
		return p.checkFurther(number)
	}
	return fmt.Sprintf("must be between %s and %s, not %s", p.withUnit(least), p.withUnit(p.most), strings.TrimSpace(shorten(value)))
}

// checkFurther knows the numbers that PostgreSQL refuses between the bounds.
func (p parameter) checkFurther(number float64) string {
	switch {
	case slices.Contains(multiplesOf16, p.name) && math.Mod(number, 16) != 0:
		return "must be a multiple of 16 (blocks of 8kB)"
	case p.name == "io_max_concurrency" && number == 0:
		return "must be -1 (PostgreSQL chooses) or between 1 and " + p.most
	case p.name == "vacuum_buffer_usage_limit" && number != 0 && number < 128:
		return "must be 0 or between 128kB and " + p.withUnit(p.most)
	default:
		return ""
	}
}

// bound reads a bound of the catalogue.
func bound(text string) float64 {
	if text == "1.79769e+308" {
		return math.MaxFloat64 // pg_settings rounds it.
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return number
}

// number reads a value in the setting's unit; wrong says why it cannot be read.
func (p parameter) number(value string) (number float64, wrong string) {
	family := familyOf(p.unit)
	what := "a whole number"
	if p.kind == "real" {
		what = "a number"
	}
	if family != nil {
		what += fmt.Sprintf(" (of %s, unless it ends in one of the units %s)", p.unit, family.names())
	}
	m := numberWithUnit.FindStringSubmatch(value)
	if m == nil {
		return 0, fmt.Sprintf("must be %s, not %q", what, shorten(value))
	}
	number, ok := parseNumber(m[1], p.kind == "real")
	if !ok {
		return 0, fmt.Sprintf("must be %s, not %q", what, shorten(value))
	}
	if m[2] != "" {
		if number, ok = family.convert(number, m[2], p.unit); !ok {
			return 0, fmt.Sprintf("must be %s; %q is not such a unit (case matters)", what, shorten(m[2]))
		}
	}
	if p.kind == "integer" {
		number = math.RoundToEven(number)
	}
	return number, ""
}

func (p parameter) withUnit(bound string) string {
	if p.unit == "8kB" {
		return bound + " (blocks of 8kB)"
	}
	return bound + p.unit
}

// parseNumber reads as C does: 0x is hexadecimal, and in whole numbers a leading 0 is octal, also before a point.
func parseNumber(s string, isReal bool) (float64, bool) {
	if strings.ContainsAny(s, "xX") || !isReal && !strings.ContainsAny(s, ".eE") {
		n, err := strconv.ParseInt(s, 0, 64)
		return float64(n), err == nil
	}
	whole, _, _ := strings.Cut(strings.TrimLeft(s, "+-"), ".")
	if !isReal && strings.HasPrefix(whole, "0") && strings.ContainsAny(whole, "89") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	// Numbers too small for full precision are out of range in C.
	mantissa, _, _ := strings.Cut(strings.ToLower(s), "e")
	tiny := math.Abs(f) < 0x1p-1022 && strings.ContainsAny(mantissa, "123456789")
	return f, err == nil && !tiny
}
