package pg

import (
	"bufio"
	"io"
	"regexp"
	"strings"
	"sync"
)

// severity finds what PostgreSQL puts before a message, whatever the prefix of the log's lines is.
var severity = regexp.MustCompile(`\b(LOG|WARNING|ERROR|FATAL|PANIC|DETAIL|HINT):  (.*)$`)

// summary is the essence of a program's complaints: its errors and their details in one line, at most 600 bytes.
func summary(output string) string {
	var picked []string
	last := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" {
			last = line
		}
		lower := strings.ToLower(line)
		for _, word := range []string{"error:", "fatal:", "panic:", "detail:"} {
			if strings.Contains(lower, word) {
				picked = append(picked, line)
				break
			}
		}
	}
	if len(picked) == 0 {
		picked = []string{last}
	}
	return shorten(strings.Join(picked, "; "))
}

func shorten(s string) string {
	const most = 600
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// logTail passes PostgreSQL's log on, and remembers why it ended and why it could not follow.
type logTail struct {
	mu sync.Mutex
	// fatal is the last message that ends a process, receiver the last trouble of the WAL receiver.
	fatal, receiver string
	// ahead: since the WAL receiver last began to stream, it said that it waits for a primary that has less log than it has.
	ahead bool
	// author is known once the server is up. Before that no client can have it write what the client chose.
	author *author
}

// know has only the server's own lines noted from now on.
func (t *logTail) know(prefix, postmaster string) {
	a := newAuthor(prefix, postmaster)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.author = a
}

// noise are endings of single clients' sessions, which say nothing of the server.
var noise = []string{
	"the database system is", "terminating connection", "password authentication failed", "no pg_hba.conf entry",
	"certificate authentication failed", "peer authentication failed", "connection requires", "does not exist",
	"terminating walreceiver", "terminating autovacuum", "terminating background worker", "canceling",
}

// receiverWords are in messages about following a primary.
var receiverWords = []string{"WAL stream", "the primary", "replication slot", "requested timeline", "recovery timeline"}

// receiverAhead is how a WAL receiver of later minor versions says that its primary has less log than itself. It does not
// end then, as it used to, and pg_stat_wal_receiver says that it streams. It takes what its primary writes once that has
// come as far, though that may be something else.
const receiverAhead = "ahead of the upstream server's flush position"

// receiverBegins are in what it says when it begins to stream.
var receiverBegins = []string{"started streaming WAL from primary", "restarted WAL streaming"}

// copy passes lines on until from ends.
func (t *logTail) copy(from io.Reader, to io.Writer) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			// Nobody can be told that the container's output cannot be written.
			_, _ = io.WriteString(to, line)
			t.note(line)
		}
		if err != nil {
			return
		}
	}
}

// unprefixed is how the postmaster complains before it has a log.
const unprefixed = "postgres: "

func (t *logTail) note(line string) {
	line = strings.TrimRight(line, "\r\n")
	t.mu.Lock()
	defer t.mu.Unlock()
	// The lines of a message but its first begin with a tab, so that nobody's text looks like a message of its own.
	if strings.HasPrefix(line, "\t") || t.author != nil && !t.author.own(line) {
		return
	}
	m := severity.FindStringSubmatch(line)
	if m == nil {
		if complaint, ok := strings.CutPrefix(line, unprefixed); ok && t.author == nil {
			t.fatal = shorten(complaint)
		}
		return
	}
	level, message := m[1], shorten(m[2])
	if level != "FATAL" && level != "PANIC" && level != "ERROR" && level != "LOG" {
		return
	}
	switch {
	case strings.Contains(message, receiverAhead):
		t.ahead, t.receiver = true, message
		return
	case containsAny(message, receiverBegins):
		t.ahead = false
	}
	if containsAny(message, receiverWords) {
		if level != "LOG" || strings.Contains(message, "invalid") {
			t.receiver = message
		}
		return
	}
	if (level == "FATAL" || level == "PANIC") && !containsAny(message, noise) {
		t.fatal = message
	}
}

func (t *logTail) lastFatal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fatal
}

func (t *logTail) lastReceiver() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.receiver
}

func (t *logTail) receiverAhead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ahead
}

func containsAny(s string, words []string) bool {
	for _, word := range words {
		if strings.Contains(s, word) {
			return true
		}
	}
	return false
}

// hopelessWords are in troubles of a replica that waiting does not cure.
var hopelessWords = []string{"has already been removed", "timeline", "ahead of the WAL flush position", receiverAhead, "can no longer", "invalidated", "identifier differs"}

// Hopeless tells whether a trouble of the WAL receiver is one that waiting does not cure.
func Hopeless(trouble string) bool { return containsAny(trouble, hopelessWords) }
