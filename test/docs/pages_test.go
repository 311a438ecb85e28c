// Package docs proves the user guide: its links lead somewhere, its make
// targets exist, and its marked commands work on the local cluster.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// root is the repository, seen from this directory.
const root = "../.."

// page is one Markdown file.
type page struct {
	path string // below root
	text string
}

// opening marks a block whose commands are run.
const opening = "```sh test"

var (
	link       = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
	makeTarget = regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)*)")
)

func read(path string) (page, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return page{path: path, text: string(text)}, err
}

// guide is the pages of docs in the order of its index.
func guide() ([]page, error) {
	index, err := read("docs/README.md")
	if err != nil {
		return nil, err
	}
	var pages []page
	for _, target := range index.links() {
		p, err := read(filepath.Join("docs", target))
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
	}
	return pages, nil
}

// links are the targets of links to other files of the repository.
func (p page) links() []string {
	var targets []string
	for _, match := range link.FindAllStringSubmatch(p.text, -1) {
		if !strings.Contains(match[1], "://") {
			targets = append(targets, match[1])
		}
	}
	return targets
}

// makeTargets are the targets of make that the page names.
func (p page) makeTargets() []string {
	var targets []string
	for _, match := range makeTarget.FindAllStringSubmatch(p.text, -1) {
		targets = append(targets, strings.Fields(match[1])...)
	}
	return targets
}

// script is the commands of the marked blocks, one after the other.
func (p page) script() (string, error) {
	var script strings.Builder
	inside := false
	for line := range strings.Lines(p.text) {
		switch marker := strings.TrimRight(line, "\n"); {
		case !inside && marker == opening:
			inside = true
		case inside && marker == "```":
			inside = false
		case inside:
			script.WriteString(line)
		}
	}
	if inside {
		return "", fmt.Errorf("%s: a block is not closed", p.path)
	}
	return script.String(), nil
}
