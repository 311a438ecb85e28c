package golden

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDifference(t *testing.T) {
	tests := map[string]struct{ want, got, text string }{
		"changed": {"a\nb\nc", "a\nx\nc", "line 2 of 3 (file) and 3 (test):\n  a\n- b\n- c\n+ x\n+ c\n"},
		"longer":  {"a", "a\nb", "line 2 of 1 (file) and 2 (test):\n  a\n+ b\n"},
		"shorter": {"a\nb", "a", "line 2 of 2 (file) and 1 (test):\n  a\n- b\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if text := difference(tc.want, tc.got); text != tc.text {
				t.Errorf("got %q, want %q", text, tc.text)
			}
		})
	}
}

// recorder is a test that only remembers whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }
func (r *recorder) Fatal(...any)          { r.failed = true }

func TestEqual(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(updateEnv, "1")
	Equal(t, filepath.Join("deep", "file.yaml"), []byte("a\n"))
	if content, err := os.ReadFile(filepath.Join("testdata", "deep", "file.yaml")); err != nil || string(content) != "a\n" {
		t.Fatalf("updating wrote %q, %v", content, err)
	}
	t.Setenv(updateEnv, "")
	Equal(t, filepath.Join("deep", "file.yaml"), []byte("a\n"))
	other := &recorder{TB: t}
	Equal(other, filepath.Join("deep", "file.yaml"), []byte("b\n"))
	if !other.failed {
		t.Error("another content passes")
	}
}
