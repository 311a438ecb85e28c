package pgserver

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/acme/pg-operator/postgres"
)

// Setting is a line of pg_settings.
type Setting struct {
	// Name in lower case; Type, Unit, Min, Max, Context, Category and Default as pg_settings has them, empty for NULL.
	Name, Type, Unit, Min, Max, Context, Category, Default string
	// Values of an enumeration that pg_settings lists.
	Values []string
}

const listSettings = `COPY (SELECT lower(name), vartype, coalesce(unit, ''), coalesce(min_val, ''), coalesce(max_val, ''), context,
category, coalesce(boot_val, ''), coalesce(array_to_string(enumvals, ','), '') FROM pg_settings
WHERE name NOT LIKE '%.%' ORDER BY lower(name) COLLATE "C") TO STDOUT`

// Settings are all settings that a fresh database lists, sorted by name.
func (s Server) Settings(ctx context.Context) ([]Setting, error) {
	out, err := s.inScratch(ctx, map[string]string{"list.sql": strings.ReplaceAll(listSettings, "\n", " ") + "\n"}, `
initdb --no-sync --no-instructions -A trust -U postgres --locale=C --encoding=UTF8 -D data >initdb.log 2>&1 || { cat initdb.log; exit 1; }
postgres --single -F -D data template1 <list.sql 2>server.log || { cat server.log; exit 1; }`)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL %s: %w", s.Version.Full, err)
	}
	var settings []Setting
	for line := range strings.Lines(out) {
		// The prompt of single-user mode stands before the first line.
		f := strings.Split(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "backend> "), "\t")
		if len(f) != 9 {
			continue
		}
		setting := Setting{Name: f[0], Type: f[1], Unit: f[2], Min: f[3], Max: f[4], Context: f[5], Category: f[6], Default: f[7]}
		if f[8] != "" {
			setting.Values = strings.Split(f[8], ",")
		}
		settings = append(settings, setting)
	}
	if len(settings) < 300 {
		return nil, fmt.Errorf("PostgreSQL %s lists %d settings only: %q", s.Version.Full, len(settings), out)
	}
	return settings, nil
}

// Judge asks the server about configuration files, without starting it: for each file, what it says about the
// settings that it refuses. A refused setting does not keep the others from being judged.
func (s Server) Judge(ctx context.Context, files []map[string]string) ([]map[string]string, error) {
	const mark = "== "
	content := map[string]string{}
	for i, file := range files {
		content[fmt.Sprintf("%06d/postgresql.conf", i)] = renderLoudFirst(file)
	}
	out, err := s.inScratch(ctx, content, `for dir in [0-9]*; do
echo "== $dir"
postgres -C work_mem -D $dir 2>&1 || echo "failed"
done`)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL %s: %w", s.Version.Full, err)
	}
	parts := strings.Split("\n"+out, "\n"+mark)[1:]
	if len(parts) != len(files) {
		return nil, fmt.Errorf("PostgreSQL %s answered %d of %d files", s.Version.Full, len(parts), len(files))
	}
	verdicts := make([]map[string]string, len(files))
	for i, part := range parts {
		if verdicts[i], err = refusals(part, files[i]); err != nil {
			return nil, fmt.Errorf("PostgreSQL %s: %w", s.Version.Full, err)
		}
	}
	return verdicts, nil
}

// Quiet are settings that change how the server tells what it refuses after them; a file for Judge holds one at most.
var Quiet = []string{"log_min_messages", "log_error_verbosity", "log_line_prefix", "log_destination", "lc_messages"}

func renderLoudFirst(file map[string]string) string {
	loud, quiet := map[string]string{}, map[string]string{}
	for name, value := range file {
		if slices.Contains(Quiet, name) {
			quiet[name] = value
		} else {
			loud[name] = value
		}
	}
	return postgres.RenderConf(loud) + postgres.RenderConf(quiet)
}

var (
	complaint = regexp.MustCompile(`(?m)^.*(?:LOG|FATAL|ERROR):  (.*)$`)
	quoted    = regexp.MustCompile(`"([^"]*)"`)
)

// refusals finds which settings the server complained about.
func refusals(output string, file map[string]string) (map[string]string, error) {
	found := map[string]string{}
	var strange []string
	for _, line := range complaint.FindAllStringSubmatch(output, -1) {
		message := line[1]
		if strings.Contains(message, "contains errors") || strings.Contains(message, "skipping missing") {
			continue
		}
		name := ""
		for _, word := range quoted.FindAllStringSubmatch(message, -1) {
			lower := strings.ToLower(word[1])
			if _, ours := file[lower]; ours && name == "" {
				name = lower
			}
		}
		if name == "" {
			strange = append(strange, message)
			continue
		}
		found[name] = message
	}
	failed := strings.HasSuffix(strings.TrimSpace(output), "failed")
	if failed == (len(found) == 0) {
		if failed && len(file) == 1 {
			for name := range file {
				return map[string]string{name: strings.TrimSpace(output)}, nil
			}
		}
		return nil, fmt.Errorf("cannot tell which setting it refuses: %q in %q", strange, output)
	}
	return found, nil
}
