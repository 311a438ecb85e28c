package pg

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// opening finds what opens a session of PostgreSQL's.
var opening = regexp.MustCompile(`\b(pgx|pgconn|pgxpool|sql)\.(Connect|ConnectConfig|ConnectWithOptions|New|NewWithConfig|Open|OpenDB)\(`)

// TestSessionsArePinned: nothing of the product opens a session but the two functions that fix its settings.
func TestSessionsArePinned(t *testing.T) {
	const root = "../.."
	var found []string
	for _, dir := range []string{"apis", "certs", "instance", "postgres", "reconciler", "webhooks"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for range opening.FindAll(content, -1) {
				found = append(found, strings.TrimPrefix(path, root+"/"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	if want := []string{"instance/pg/places.go", "instance/pg/source.go"}; !slices.Equal(slices.Compact(found), want) {
		t.Errorf("sessions are opened in %v, want %v", found, want)
	}
}
