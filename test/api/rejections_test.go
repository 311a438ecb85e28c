package api

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/admissioncases"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/golden"
)

const rejectionsHead = `# What is refused

Every mistake in a PostgresCluster that the project's tests know, and what ` + "`kubectl`" + ` answers. This page is written by a
test (` + "`make rejections`" + `) from the real answers of a Kubernetes API server, so it cannot be out of date. Mistakes
are reported together, one line per field, and nothing is stored. Most rules are part of the CRD, so they hold while no
operator runs; what needs the operator is marked with *operator*, and reported once the CRD finds nothing.

Two lines are left out below: warnings, and "some validation rules were not checked", which Kubernetes adds after a value
of the wrong type or one that is not in a list: correct that one and the rest is judged.

A field that was invalid before an upgrade and is not touched keeps no other change from being accepted.
`

// rejection is one mistake and the answer to it.
type rejection struct{ section, name, wrote, got string }

// severalFields is the section of mistakes in more than one field.
const severalFields = "Several mistakes at once"

// TestRejectionsPage sends every refused case of the table, and mistakes that no table of specs can hold, with kubectl
// and keeps the answers as a page of the user guide.
func TestRejectionsPage(t *testing.T) {
	serveWebhooks(t).Install(t)
	installPolicy(t)
	namespace := plane.Namespace(t)
	var (
		mu   sync.Mutex
		page []rejection
	)
	add := func(r rejection) {
		mu.Lock()
		defer mu.Unlock()
		page = append(page, r)
	}
	t.Run("ask", func(t *testing.T) {
		for number, name := range slices.Sorted(maps.Keys(admissioncases.All)) {
			test := admissioncases.All[name]
			if len(test.Refused) == 0 || test.Kept {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				add(rejectionOf(t, namespace, fmt.Sprintf("db-%d", number), name, test))
			})
		}
		for name, ask := range otherMistakes(namespace) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := ask(t)
				r.name = name
				add(r)
			})
		}
	})
	if t.Failed() {
		return
	}
	path := filepath.Join(plane.Repository, "docs", "rejections.md")
	golden.EqualFile(t, path, "make rejections", []byte(pageOf(page)))
}

func rejectionOf(t *testing.T, namespace, object, name string, test admissioncases.Case) rejection {
	t.Helper()
	if test.ObjectName != "" {
		object = test.ObjectName
	}
	r := rejection{section: sectionOf(test.Refused), name: name, wrote: "`" + abbreviate(test.New) + "`"}
	verb := "create"
	switch {
	case test.ObjectName != "":
		r.wrote = "`metadata: {name: " + object + "}`"
	case test.Old != "":
		verb = "replace"
		store(t, namespace, object, test)
		r.wrote = "`" + test.Old + "`, changed to " + r.wrote
	}
	if test.Status != "" {
		r.wrote += ", while status says `" + test.Status + "`"
	}
	if test.NotInSchema {
		r.wrote += " (*operator*)"
	}
	text := strings.Replace(manifest(namespace, test.New), "name: orders-db", "name: "+object, 1)
	out := plane.TryKubectl(t, text, verb, "-f", "-")
	if test.ObjectName != "" {
		object = "" // The name is the mistake, so it stays.
	}
	r.got = refusal(t, namespace, object, out)
	return r
}

// otherMistakes are requests that are refused for more than the values in a spec.
func otherMistakes(namespace string) map[string]func(*testing.T) rejection {
	const fit, requests = "Manifests that do not fit", "Other requests"
	send := func(section, spec string) func(*testing.T) rejection {
		return func(t *testing.T) rejection {
			out := plane.TryKubectl(t, manifest(namespace, spec), "create", "-f", "-")
			return rejection{section: section, wrote: "`" + spec + "`", got: refusal(t, namespace, "orders-db", out)}
		}
	}
	run := func(name, spec string, arguments ...string) func(*testing.T) rejection {
		return func(t *testing.T) rejection {
			u := object(t, namespace, name, spec)
			if err := plane.Client.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			arguments = append(arguments, "-n", namespace)
			r := rejection{section: requests, wrote: "`" + spec + "`, then `kubectl " + strings.Join(arguments, " ") + "`"}
			r.wrote = strings.NewReplacer(name, "orders-db", namespace, "shop").Replace(r.wrote)
			r.got = refusal(t, namespace, name, plane.TryKubectl(t, "", arguments...))
			return r
		}
	}
	return map[string]func(*testing.T) rejection{
		"unknown field":            send(fit, `{replica: 3}`),
		"wrong types":              send(fit, `{replicas: three, version: 16}`),
		"text for a list":          send(fit, `{hba: "host all all all md5"}`),
		"off without quotes":       send(fit, `{synchronous: {mode: off}}`),
		"scale too far":            run("scaled", `{replicas: 3}`, "scale", "pgc/scaled", "--replicas=9"),
		"scale below the quorum":   run("waiting", `{replicas: 3, synchronous: {mode: quorum, number: 2}}`, "scale", "pgc/waiting", "--replicas=2"),
		"scale to nothing":         run("emptied", `{replicas: 3}`, "scale", "pgc/emptied", "--replicas=0"),
		"delete what is protected": run("protected", `{deletionProtection: true}`, "delete", "pgc/protected"),
	}
}

// sectionOf is the field that a case is about.
func sectionOf(refused []string) string {
	var tops []string
	for _, field := range refused {
		parts := strings.SplitN(strings.ReplaceAll(field, "[", "."), ".", 3)
		tops = append(tops, strings.Join(parts[:2], "."))
	}
	slices.Sort(tops)
	if tops = slices.Compact(tops); len(tops) > 1 {
		return severalFields
	}
	return "`" + tops[0] + "`"
}

var notChecked = regexp.MustCompile(`(?m)^\* <nil>: .*some validation rules were not checked.*\n`)

// refusal is what kubectl printed, the same each time: without warnings, in order, with the names of the guide.
func refusal(t *testing.T, namespace, object string, out controlplane.Output) string {
	t.Helper()
	if out.Code == 0 {
		t.Fatal("accepted")
	}
	text := notChecked.ReplaceAllString(answer(out.Stderr), "")
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	slices.SortStableFunc(lines, func(a, b string) int { // The headline first.
		return strings.Compare(strings.ReplaceAll(a[:1], "T", " "), strings.ReplaceAll(b[:1], "T", " "))
	})
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	text = strings.ReplaceAll(strings.Join(lines, "\n"), namespace, "shop")
	if object != "" {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(object)+`\b`).ReplaceAllString(text, "orders-db")
	}
	return text
}

func abbreviate(spec string) string {
	const most = 160
	if len(spec) <= most || strings.Count(spec, "},") < 10 && strings.Count(spec, ": x,") < 10 {
		return spec
	}
	return spec[:most] + " ..."
}

// pageOf orders the page as `kubectl explain` orders the fields.
func pageOf(page []rejection) string {
	sections := []string{"`metadata.name`"}
	for field := range reflect.TypeFor[v1alpha1.PostgresClusterSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		sections = append(sections, "`spec."+name+"`")
	}
	sections = append(sections, severalFields, "Manifests that do not fit", "Other requests")
	slices.SortFunc(page, func(a, b rejection) int { return strings.Compare(a.name, b.name) })
	var text strings.Builder
	text.WriteString(rejectionsHead)
	written := 0
	for _, section := range sections {
		head := "\n## " + section + "\n"
		for _, r := range page {
			if r.section != section {
				continue
			}
			fmt.Fprintf(&text, "%s\n**%s**: %s\n\n```text\n%s\n```\n", head, r.name, r.wrote, r.got)
			head = ""
			written++
		}
	}
	if written != len(page) {
		panic("a rejection is in no section of the page")
	}
	return text.String()
}
