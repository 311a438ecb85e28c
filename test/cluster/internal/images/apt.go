package images

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// aptEntry is one package source of the machine's apt configuration.
type aptEntry struct {
	uri    string
	suite  string
	signed string // path of the keyring, or empty for apt's default ones
}

// mirrors is where this machine gets Debian packages from.
type mirrors struct {
	archive  aptEntry
	security aptEntry
}

// source is a one-line apt source of the suite with the main component.
func (e aptEntry) source(suite string) string {
	options := ""
	if e.signed != "" {
		options = "[signed-by=" + e.signed + "] "
	}
	return "deb " + options + e.uri + " " + suite + " main"
}

// readMirrors finds the Debian mirrors among the apt sources below root (the
// root directory, except in tests).
func readMirrors(root string) (mirrors, error) {
	var entries []aptEntry
	base := filepath.Join(root, "etc/apt")
	lists, err := filepath.Glob(filepath.Join(base, "sources.list.d/*.list"))
	if err != nil {
		return mirrors{}, err
	}
	for _, path := range append([]string{filepath.Join(base, "sources.list")}, lists...) {
		entries = append(entries, readWith(path, parseList)...)
	}
	deb822, err := filepath.Glob(filepath.Join(base, "sources.list.d/*.sources"))
	if err != nil {
		return mirrors{}, err
	}
	for _, path := range deb822 {
		entries = append(entries, readWith(path, parseSources)...)
	}
	return chooseMirrors(entries)
}

// readWith parses a file that may be absent: a machine has either kind.
func readWith(path string, parse func(string) []aptEntry) []aptEntry {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return parse(string(content))
}

func chooseMirrors(entries []aptEntry) (mirrors, error) {
	releases := []string{"bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}
	var chosen mirrors
	for _, entry := range entries {
		release, isSecurity := strings.CutSuffix(entry.suite, "-security")
		switch {
		case !slices.Contains(releases, release):
		case isSecurity && chosen.security.uri == "":
			chosen.security = entry
		case !isSecurity && chosen.archive.uri == "":
			chosen.archive = entry
		}
	}
	if chosen.archive.uri == "" || chosen.security.uri == "" {
		return mirrors{}, fmt.Errorf("apt has no source for a Debian release and its -security suite: "+
			"the PostgreSQL images are built from Debian packages, so add both to /etc/apt/sources.list.d (found %d sources)", len(entries))
	}
	return chosen, nil
}

// parseList reads the one-line format of sources.list(5).
func parseList(content string) []aptEntry {
	var entries []aptEntry
	scanner := bufio.NewScanner(strings.NewReader(content))
	for scanner.Scan() {
		line, _, _ := strings.Cut(scanner.Text(), "#")
		rest, isBinary := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !isBinary {
			continue
		}
		signed := ""
		if options, after, found := strings.Cut(rest, "]"); found {
			for option := range strings.FieldsSeq(strings.TrimLeft(options, " [")) {
				if path, ok := strings.CutPrefix(option, "signed-by="); ok {
					signed = path
				}
			}
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) >= 3 && slices.Contains(fields[2:], "main") {
			entries = append(entries, aptEntry{uri: fields[0], suite: fields[1], signed: signed})
		}
	}
	return entries
}

// parseSources reads the deb822 format of sources.list(5). A keyring written
// into the file itself is left to apt's defaults.
func parseSources(content string) []aptEntry {
	var entries []aptEntry
	for stanza := range strings.SplitSeq(content, "\n\n") {
		fields := map[string]string{}
		for line := range strings.SplitSeq(stanza, "\n") {
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, " ") {
				continue
			}
			if key, value, found := strings.Cut(line, ":"); found {
				fields[strings.ToLower(key)] = strings.TrimSpace(value)
			}
		}
		usable := fields["enabled"] != "no" &&
			slices.Contains(strings.Fields(fields["types"]), "deb") &&
			slices.Contains(strings.Fields(fields["components"]), "main")
		if !usable {
			continue
		}
		for uri := range strings.FieldsSeq(fields["uris"]) {
			for suite := range strings.FieldsSeq(fields["suites"]) {
				entries = append(entries, aptEntry{uri: uri, suite: suite, signed: fields["signed-by"]})
			}
		}
	}
	return entries
}

// aptOptions are the machine's settings about reaching its mirrors, which a
// private apt would not know.
func aptOptions(ctx context.Context) ([]string, error) {
	output, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return nil, fmt.Errorf("read the apt configuration: %w", err)
	}
	return transportOptions(string(output)), nil
}

func transportOptions(dump string) []string {
	prefixes := []string{
		"Acquire::http::", "Acquire::https::", "Acquire::Check-Valid-Until ", "Acquire::Check-Date ", "Acquire::Retries ",
	}
	var options []string
	for line := range strings.SplitSeq(dump, "\n") {
		wanted := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
		if wanted && !strings.HasSuffix(line, ` "";`) {
			options = append(options, strings.TrimSuffix(line, ";"))
		}
	}
	return options
}
