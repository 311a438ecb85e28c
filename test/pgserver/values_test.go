package pgserver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/acme/pg-operator/test/pgserver"
)

var texts = []string{
	"", "x", "a, b", "a,,b", ",", `"a`, `"a b"`, `"a""b" , c`, "a b", `a'b\c`, "a\nb", strings.Repeat("x", 70), " ", "on", "off", "a,", "'",
}

// textsOf are values of settings that are texts with a grammar of their own.
var textsOf = map[string][]string{
	"datestyle": {
		"ISO", "iso, dmy", "SQL,European", "german", "German, YMD", "postgres", "PostgresX, US", "ISO, SQL", "DMY, MDY",
		"ISO,ISO", "default", "NonEuropean", "is", `"ISO"`, "ISO DMY", "US, MDY", "iso,",
	},
	"log_connections": {
		"receipt", "Receipt, authorization", "all", "setup_durations", "authentication,", "none", "true", "on", "on, all", "0", "yes",
		"receipt, off", `"receipt"`, "no", "t", "",
	},
	"createrole_self_grant":            {"set", "INHERIT, set", "set inherit", "admin", "inherit,inherit", "none"},
	"restrict_nonsystem_relation_kind": {"view", "foreign-table, view", "table", "View", "view view"},
	"search_path":                      {`"$user", public`, "a.b", `public, "My Schema"`},
	"default_table_access_method":      {"heap", "Heap", strings.Repeat("h", 63), strings.Repeat("h", 64)},
	"log_line_prefix":                  {"%m [%p] %q%u@%d ", "%"},
	"timezone":                         {"UTC", "Europe/Zurich", "+2", "nowhere"},
}

// binary is a number for newer C libraries only, which differ between images of one version.
const binary = "0b1"

var (
	bools      = []string{"on", "off", "true", "false", "yes", "no", "1", "0", "t", "F", "y", "N", "tr", "fals", "of", "ON", "oN"}
	notBools   = []string{"", "o", "2", " on", "on ", "yess", "null", "-1", "onoff", "01", "0.0"}
	numbers    = []string{"0", "1", "-1", "+1", "0x10", "-0x10", "020", "010", "1e1", "1E+2", "16.4", "0.5", ".5", "5.", "  64 ", "\t64\n", "128"}
	notNumbers = []string{
		"", " ", "x", "--1", "+-1", "1_0", "1,5", "1.2.3", "0x", "099", "08.5", "1e", "1e+", "e1", "1e400", "-1e400", "nan", "9999999999999999999",
		"-9999999999999999999", "1x", "1 x", "1 1", "$1", binary, "0o7", "true", "1kBx", "kB", "1;", "1.e", "1e-400",
	}
	unitsOfMemory = []string{"B", "kB", "MB", "GB", "TB"}
	unitsOfTime   = []string{"us", "ms", "s", "min", "h", "d"}
	notUnits      = []string{"b", "KB", "kb", "mb", "M", "k", "PB", "8kB", "S", "sec", "m", "day", "ns", "%"}
)

// valuesFor are values worth trying for a setting, good and bad ones, each once.
func valuesFor(s pgserver.Setting, all []pgserver.Setting) []string {
	var values []string
	switch s.Type {
	case "bool":
		values = slices.Concat(bools, notBools)
	case "enum":
		values = slices.Concat(bools, []string{"", " ", "nonsense", " on"})
		for _, other := range all {
			// Of the quiet ones only one can be tried at a time, so they get fewer.
			if !slices.Contains(pgserver.Quiet, s.Name) {
				values = append(values, other.Values...)
			}
		}
		values = append(values, s.Values...)
		for _, own := range s.Values {
			values = append(values, strings.ToUpper(own), own+" ", own+"x")
		}
	case "integer", "real":
		values = slices.Concat(numbers, notNumbers, numbersFor(s))
	default:
		values = slices.Concat(texts, textsOf[s.Name])
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// numbersFor are the bounds of a setting and their neighbours, in every unit, and random numbers.
func numbersFor(s pgserver.Setting) []string {
	var values []string
	units := slices.Concat(unitsOfMemory, unitsOfTime)
	for _, text := range []string{s.Min, s.Max} {
		values = append(values, text)
		bound, err := strconv.ParseFloat(text, 64)
		if err != nil || bound > 1e300 {
			continue
		}
		for _, step := range []float64{-1, -0.6, -0.5, -0.4, 0.4, 0.5, 0.6, 1} {
			values = append(values, strconv.FormatFloat(bound+step, 'f', -1, 64))
		}
		values = append(values, fmt.Sprintf("%#x", int64(bound)), fmt.Sprintf("0%o", int64(max(bound, 0))), text+".0", text+"e0", " "+text+" ")
		for _, unit := range units {
			values = append(values, boundIn(bound, s.Unit, unit)...)
		}
	}
	for _, unit := range units {
		values = append(values, "2 "+unit, "1.5"+unit, "100"+unit+" ", "-1"+unit)
	}
	for _, unit := range slices.Concat(units, notUnits) {
		values = append(values, "1"+unit)
	}
	// The same numbers for the same setting in each run.
	random := rand.New(rand.NewPCG(uint64(len(s.Name)), uint64(s.Name[0])))
	for range 8 {
		digits := strconv.FormatFloat(random.ExpFloat64()*1000, 'f', random.IntN(5), 64)
		values = append(values, digits, digits+units[random.IntN(len(units))])
	}
	return values
}

// sizes of the units, in the smallest of their kind.
var sizes = map[string]float64{
	"B": 1, "kB": 1 << 10, "8kB": 8 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40,
	"us": 1, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "d": 86400e6,
}

// boundIn expresses a bound in another unit, exactly and with a little more and less.
func boundIn(bound float64, from, to string) []string {
	if from == "" || slices.Contains(unitsOfTime, from) != slices.Contains(unitsOfTime, to) {
		return nil
	}
	exact := bound * sizes[from] / sizes[to]
	var values []string
	for _, number := range []float64{exact, exact - 1, exact + 1, exact * 0.999, exact * 1.001} {
		values = append(values, strconv.FormatFloat(number, 'f', 6, 64)+to, strconv.FormatFloat(number, 'f', 0, 64)+" "+to)
	}
	return values
}
