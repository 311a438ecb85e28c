package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/acme/pg-operator/test/pgserver"
)

// entry is what the catalogue says about a setting of one major version.
type entry struct {
	name, facts string
}

// otherBuilds are values that depend on what a server was built with: another build of the same version has them.
var otherBuilds = map[string][]string{
	"default_toast_compression": {"lz4"},
	"wal_compression":           {"lz4", "zstd"},
	"io_method":                 {"io_uring"},
}

// backported are settings that came with minor versions of several majors, and that not all images are new enough for.
var backported = []string{"composite_type_mismatch", "output_plugin_libraries"}

// backportedTo are the majors whose latest minor versions have them.
var backportedTo = []string{"15", "16", "17", "18"}

// foreign are settings that a distribution adds to PostgreSQL.
var foreign = []string{"extension_destdir"}

// read asks a server for its settings and for the values that it takes but does not list.
func read(ctx context.Context, server pgserver.Server) ([]entry, error) {
	settings, err := server.Settings(ctx)
	if err != nil {
		return nil, err
	}
	hidden, err := hiddenValues(ctx, server, settings)
	if err != nil {
		return nil, err
	}
	entries := make([]entry, 0, len(settings))
	for _, s := range settings {
		if slices.Contains(foreign, s.Name) {
			continue
		}
		if s.Context == "internal" {
			// These are facts of a build or a database, which differ.
			s.Min, s.Max, s.Default, s.Values = "", "", "", nil
		}
		if s.Type == "string" {
			s.Default = ""
		}
		group := ""
		if s.Category == "Developer Options" {
			group = "developer"
		}
		values := s.Values
		if builds := otherBuilds[s.Name]; builds != nil {
			// Sorted, because the order differs between builds as well.
			values = slices.Concat(values, builds)
			slices.Sort(values)
			values = slices.Compact(values)
		}
		entries = append(entries, entry{name: s.Name, facts: strings.Join([]string{
			s.Type, s.Unit, s.Min, s.Max, s.Default, s.Context, group, strings.Join(values, ","), strings.Join(hidden[s.Name], ","),
		}, "\t")})
	}
	return entries, nil
}

// formerWords are values of enumerations that PostgreSQL no longer lists, beside those that some setting lists.
var formerWords = []string{
	"true", "false", "yes", "no", "1", "0", "on", "off", "debug", "info", "fatal", "panic", "archive", "hot_standby",
}

// hiddenValues tries every word on every enumeration.
func hiddenValues(ctx context.Context, server pgserver.Server, settings []pgserver.Setting) (map[string][]string, error) {
	words := slices.Clone(formerWords)
	var files []map[string]string
	for _, s := range settings {
		words = append(words, s.Values...)
	}
	slices.Sort(words)
	words = slices.Compact(words)
	for _, word := range words {
		all := map[string]string{}
		for _, s := range settings {
			switch {
			case s.Type != "enum" || s.Context == "internal":
			case slices.Contains(pgserver.Quiet, s.Name):
				files = append(files, map[string]string{s.Name: word})
			default:
				all[s.Name] = word
			}
		}
		files = append(files, all)
	}
	verdicts, err := server.Judge(ctx, files)
	if err != nil {
		return nil, err
	}
	hidden := map[string][]string{}
	for i, file := range files {
		for name, word := range file {
			if _, refused := verdicts[i][name]; !refused {
				hidden[name] = append(hidden[name], word)
			}
		}
	}
	for _, s := range settings {
		hidden[s.Name] = slices.DeleteFunc(hidden[s.Name], func(word string) bool { return slices.Contains(s.Values, word) })
		slices.Sort(hidden[s.Name])
	}
	return hidden, nil
}

// line is an entry with the majors that it holds for.
type line struct {
	entry
	since, until int // indices of the first and the last major
}

// merge joins the entries of adjacent majors that say the same.
func merge(majors []string, found map[string][]entry) []line {
	var lines []line
	for i, major := range majors {
		for _, e := range complete(major, found) {
			same := slices.IndexFunc(lines, func(l line) bool { return l.entry == e && l.until == i-1 })
			if same >= 0 {
				lines[same].until = i
			} else {
				lines = append(lines, line{entry: e, since: i, until: i})
			}
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.since, b.since)) })
	return lines
}

// complete adds to a major's settings the backported ones that its image lacks, as other majors have them.
func complete(major string, found map[string][]entry) []entry {
	entries := slices.Clone(found[major])
	for _, name := range backported {
		named := func(e entry) bool { return e.name == name }
		if !slices.Contains(backportedTo, major) || slices.ContainsFunc(entries, named) {
			continue
		}
		for _, other := range backportedTo {
			if i := slices.IndexFunc(found[other], named); i >= 0 {
				entries = append(entries, found[other][i])
				break
			}
		}
	}
	return entries
}

func render(majors, versions []string, lines []line) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by make catalogue from pg_settings of PostgreSQL %s. Do not edit.\n", strings.Join(versions, ", "))
	b.WriteString("# name\ttype\tunit\tmin\tmax\tdefault\tcontext\tgroup\tvalues\tfurther values\tsince\tuntil\n")
	for _, l := range lines {
		since, until := majors[l.since], majors[l.until]
		if l.since == 0 {
			since = ""
		}
		if l.until == len(majors)-1 {
			until = ""
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", l.name, l.facts, since, until)
	}
	return b.String()
}
