package postgres

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// check says what is wrong with a value, in PostgreSQL's own grammar; empty if nothing is.
func (p parameter) check(value string) string {
	switch p.kind {
	case "bool":
		if !isBool(value) {
			return fmt.Sprintf("must be on or off, not %q", value)
		}
	case "enum":
		if !p.isEnum(value) {
			return fmt.Sprintf("must be one of %s, not %q", strings.Join(p.values, ", "), value)
		}
	case "integer", "real":
		return p.checkNumber(value)
	}
	return ""
}

// isBool accepts what PostgreSQL does: any unique beginning of true, false, yes, no, on, off, and 1 and 0.
func isBool(value string) bool {
	v := strings.ToLower(value)
	if v == "" || v == "o" {
		return false
	}
	for _, word := range []string{"true", "false", "yes", "no", "on", "off", "1", "0"} {
		if strings.HasPrefix(word, v) {
			return true
		}
	}
	return false
}

// boolWords are the spellings that enumerations with on and off also accept.
var boolWords = []string{"true", "false", "yes", "no", "1", "0"}

func (p parameter) isEnum(value string) bool {
	v := strings.ToLower(value)
	same := func(s string) bool { return strings.EqualFold(s, v) }
	return slices.ContainsFunc(p.values, same) || slices.Contains(p.values, "on") && slices.Contains(boolWords, v)
}

// scale is a family of units: how many of the smallest one each is.
type scale map[string]float64

var (
	bytesScale = scale{"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
	timeScale  = scale{"us": 1, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "d": 86400e6}
)

// unitScale is the family of a setting's unit, and how many smallest units it is.
func unitScale(unit string) (family scale, size float64, names string) {
	switch {
	case unit == "":
		return nil, 1, ""
	case unit == "8kB":
		return bytesScale, 8 << 10, "B, kB, MB, GB and TB"
	case bytesScale[unit] != 0:
		return bytesScale, bytesScale[unit], "B, kB, MB, GB and TB"
	default:
		return timeScale, timeScale[unit], "us, ms, s, min, h and d"
	}
}

var numberWithUnit = regexp.MustCompile(`^\s*([+-]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))\s*([A-Za-z]*)\s*$`)

func (p parameter) checkNumber(value string) string {
	family, size, names := unitScale(p.unit)
	what := "a whole number"
	if p.kind == "real" {
		what = "a number"
	}
	if family != nil {
		what += fmt.Sprintf(" (of %s, unless it ends in one of the units %s)", p.unit, names)
	}
	m := numberWithUnit.FindStringSubmatch(value)
	if m == nil {
		return fmt.Sprintf("must be %s, not %q", what, value)
	}
	number, ok := parseNumber(m[1], p.kind == "real")
	if !ok {
		return fmt.Sprintf("must be %s, not %q", what, value)
	}
	if unit := m[2]; unit != "" {
		if family[unit] == 0 {
			return fmt.Sprintf("must be %s; %q is not such a unit (case matters)", what, unit)
		}
		number *= family[unit] / size
	}
	if p.kind == "integer" {
		number = math.RoundToEven(number)
	}
	least, errLeast := strconv.ParseFloat(p.least, 64)
	most, errMost := strconv.ParseFloat(p.most, 64)
	if errLeast == nil && number < least || errMost == nil && number > most {
		return fmt.Sprintf("must be between %s and %s, not %s", p.withUnit(p.least), p.withUnit(p.most), strings.TrimSpace(value))
	}
	return ""
}

func (p parameter) withUnit(bound string) string {
	if p.unit == "8kB" {
		return bound + " (blocks of 8kB)"
	}
	return bound + p.unit
}

// parseNumber reads as C does: 0x is hexadecimal, and in whole numbers a leading 0 is octal.
func parseNumber(s string, isReal bool) (float64, bool) {
	if !isReal && !strings.ContainsAny(s, ".eE") || strings.ContainsAny(s, "xX") {
		n, err := strconv.ParseInt(s, 0, 64)
		return float64(n), err == nil
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
