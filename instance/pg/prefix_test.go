package pg

import (
	"strings"
	"testing"
)

// TestLogTailAuthor has clients write what looks like the server's own words.
func TestLogTailAuthor(t *testing.T) {
	const usual = "%m [%p] %q%u@%d %a "
	const now = "2026-11-30 01:13:50.683 UTC "
	for name, tc := range map[string]struct {
		prefix, line    string
		fatal, receiver string
	}{
		"postmaster":              {prefix: usual, line: now + "[7] FATAL:  no space", fatal: "no space"},
		"startup process":         {prefix: usual, line: now + "[8] PANIC:  no checkpoint", fatal: "no checkpoint"},
		"receiver":                {prefix: usual, line: now + "[8] FATAL:  could not connect to the primary server: FATAL:  no", receiver: "could not connect to the primary server: FATAL:  no"},
		"raised":                  {prefix: usual, line: now + "[9] app@app psql ERROR:  the primary has timeline 1"},
		"raised, second line":     {prefix: usual, line: now + "[9] app@app psql LOG:  x\n\t" + now + "[8] FATAL:  forged"},
		"second line, no prefix":  {prefix: "", line: "LOG:  x\n\tFATAL:  forged"},
		"application's name":      {prefix: usual, line: now + "[9] app@app FATAL:  forged LOG:  x"},
		"user's name":             {prefix: usual, line: now + "[9] FATAL:  the primary is gone@x y FATAL:  password"},
		"own prefix, session":     {prefix: "%p ", line: "9 FATAL:  forged"},
		"own prefix, postmaster":  {prefix: "%p ", line: "7 FATAL:  no space", fatal: "no space"},
		"two process numbers":     {prefix: "%p %-5p|", line: "7 7    |FATAL:  no space", fatal: "no space"},
		"no process number":       {prefix: "it's %m ", line: "it's " + now + " FATAL:  forged"},
		"sessions marked":         {prefix: "%t %b<%u> ", line: "2026-11-30 01:13:50 UTC startup<> FATAL:  no space"},
		"sessions marked, stop":   {prefix: "%t %q<%u> ", line: "2026-11-30 01:13:50 UTC FATAL:  no space", fatal: "no space"},
		"program's own output":    {prefix: usual, line: "FATAL:  forged"},
		"unprefixed when it runs": {prefix: usual, line: "postgres: forged"},
		"no text":                 {prefix: "\xff%p ", line: "?7 FATAL:  no space", fatal: "no space"},
		"escapes are not regexps": {prefix: "(.*[ %% %z", line: "(.*[ % FATAL:  forged"},
	} {
		t.Run(name, func(t *testing.T) {
			tail := &logTail{}
			tail.know(tc.prefix, "7")
			tail.copy(strings.NewReader(tc.line+"\n"), &strings.Builder{})
			if tail.lastFatal() != tc.fatal || tail.lastReceiver() != tc.receiver {
				t.Errorf("fatal %q, receiver %q", tail.lastFatal(), tail.lastReceiver())
			}
		})
	}
}

// TestLogTailUnprefixed has the postmaster refuse to start before it has a log.
func TestLogTailUnprefixed(t *testing.T) {
	const complaint = "superuser_reserved_connections (3) plus reserved_connections (0) must be less than max_connections (3)"
	tail := &logTail{}
	tail.copy(strings.NewReader("postgres: "+complaint+"\n\tFATAL:  forged\n"), &strings.Builder{})
	if got := tail.lastFatal(); got != complaint {
		t.Errorf("got %q", got)
	}
}
