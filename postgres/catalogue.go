package postgres

import (
	_ "embed"
	"strings"
)

// parameter is a line of the catalogue: what pg_settings says about a setting in some major versions.
type parameter struct {
	name, kind, unit string
	least, most      string
	standard         string // PostgreSQL's own default, unless the setting is a text
	context          string
	developer        bool
	// values of an enumeration, those of other builds of the server included, and further ones that it takes but
	// does not list.
	values, further []string
	since, until    string
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

// catalogueText is written by hack/catalogue.
//
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
		p := parameter{
			name: f[0], kind: f[1], unit: f[2], least: f[3], most: f[4], standard: f[5], context: f[6],
			developer: f[7] == "developer", values: splitValues(f[8]), further: splitValues(f[9]), since: f[10], until: f[11],
		}
		byName[p.name] = append(byName[p.name], p)
	}
	return byName
}

func splitValues(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

type verdict int

const (
	unknown verdict = iota
	known
	otherMajor
)

// lookup finds a setting, in lower case, as a major version has it.
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

// NeedsRestart tells whether a server of a major version takes a new value of a setting only at its next start. The
// name may have any case. Settings of extensions are not known, and taken for ones that need none.
func NeedsRestart(major, name string) bool {
	p, verdict := lookup(major, strings.ToLower(name))
	return verdict == known && p.context == "postmaster"
}
