package instance

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "pg-operator")
	if err := os.WriteFile(to, []byte("an older one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := install(to); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(self, copied) {
		t.Errorf("the copy differs: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left over: %v, %v", entries, err)
	}
	if err := install(filepath.Join(dir, "none", "pg-operator")); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
