package pg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOutputWhileTalking runs programs that tell of their progress, and some that stop doing so.
func TestOutputWhileTalking(t *testing.T) {
	const silence = 2 * time.Second
	for name, tc := range map[string]struct {
		script string
		fails  string
		silent bool
	}{
		"talks all the time": {script: "for i in 1 2 3 4 5 6; do echo $i/6 kB >&2; sleep 0.5; done"},
		"complains":          {script: "echo 1/6 kB >&2; echo 'error: disk full' >&2; exit 1", fails: "program: error: disk full"},
		"talks a lot":        {script: "yes 1/6 kB | head -n 5000 >&2; echo 'error: late' >&2; exit 1", fails: "program: error: late"},
		"hangs":              {script: "echo 1/6 kB >&2; exec sleep 60", fails: "no progress for 2s", silent: true},
		"its child hangs":    {script: "echo 1/6 kB >&2; sleep 60", fails: "no progress for 2s", silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Programs{Dir: t.TempDir()}
			if err := os.WriteFile(filepath.Join(p.Dir, "program"), []byte("#!/bin/sh\n"+tc.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			err := p.outputWhileTalking(t.Context(), silence, "program")
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) || errors.Is(err, errSilent) != tc.silent {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
