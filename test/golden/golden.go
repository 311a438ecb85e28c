// Package golden compares what a test made with a file that is kept beside it.
// `make golden` rewrites the files; the difference is then for people to read.
package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// updateEnv makes Equal write files instead of comparing with them.
const updateEnv = "UPDATE_GOLDEN"

// around is how many lines are shown on either side of the first difference.
const around = 3

// Equal fails the test unless got is the content of the file testdata/name.
func Equal(t testing.TB, name string, got []byte) {
	t.Helper()
	EqualFile(t, filepath.Join("testdata", name), "make golden", got)
}

// EqualFile fails the test unless got is the content of a file, which update rewrites.
func EqualFile(t testing.TB, path, update string, got []byte) {
	t.Helper()
	if os.Getenv(updateEnv) != "" {
		if err := write(path, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run `%s` to write it", err, update)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; if this is wanted, run `%s` and read the difference.\n%s", path, update,
			difference(string(want), string(got)))
	}
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// difference shows two texts around the first line in which they differ, and how many lines each has from there.
func difference(want, got string) string {
	wantLines, gotLines := strings.Split(want, "\n"), strings.Split(got, "\n")
	first := 0
	for first < min(len(wantLines), len(gotLines)) && wantLines[first] == gotLines[first] {
		first++
	}
	var text strings.Builder
	fmt.Fprintf(&text, "line %d of %d (file) and %d (test):\n", first+1, len(wantLines), len(gotLines))
	for _, line := range wantLines[max(0, first-around):first] {
		text.WriteString("  " + line + "\n")
	}
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"- ", wantLines}, {"+ ", gotLines}} {
		for _, line := range side.lines[min(first, len(side.lines)):min(first+around, len(side.lines))] {
			text.WriteString(side.sign + line + "\n")
		}
	}
	return text.String()
}
