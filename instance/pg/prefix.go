package pg

import (
	"regexp"
	"strings"
)

// author tells PostgreSQL's own lines of the log from those of sessions, whose text clients choose. It goes by
// log_line_prefix: what that has of a session's user, database and application is empty in all other lines.
type author struct {
	// server is how a line of the server's own processes begins, session how one of a session's does.
	server, session *regexp.Regexp
	postmaster      string
}

// prefixEscape is an escape of log_line_prefix with its padding, or a character that stands for itself.
var prefixEscape = regexp.MustCompile(`(?s)%-?\d*(.)|.`)

// escapes are how what they stand for looks (elog.c, log_status_format); those of sessions are in sessionEscapes.
var escapes = map[string]string{
	"m": stamp, "t": stamp, "s": stamp, "n": `\d+\.\d+`, "p": `(?P<pid>\d+)`, "P": `\d*`, "l": `\d+`, "b": `[\w ]+`,
	"c": `[0-9a-f]+\.[0-9a-f]+`, "v": `[\d/]*`, "x": `\d*`, "e": `\w{5}`, "Q": `-?\d+`, "%": `%`,
}

const (
	stamp          = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+`
	sessionEscapes = "uadrhiL"
)

// newAuthor reads a log_line_prefix.
func newAuthor(prefix, postmaster string) *author {
	var server, session strings.Builder
	ended := false // By %q, where all but sessions stop.
	for _, m := range prefixEscape.FindAllStringSubmatch(strings.ToValidUTF8(prefix, "?"), -1) {
		var own, theirs string
		switch escape := m[1]; {
		case escape == "":
			own = regexp.QuoteMeta(m[0])
			theirs = own
		case escape == "q":
			ended = true
			continue
		case strings.Contains(sessionEscapes, escape):
			own, theirs = ` *(?:\[none\])? *`, `.*`
		default:
			own = ` *` + escapes[escape] + ` *`
			theirs = strings.Replace(own, `?P<pid>`, `?:`, 1)
		}
		if !ended {
			server.WriteString(own)
		}
		session.WriteString(theirs)
	}
	// A name may be given twice, which a second process number is no reason for.
	first, rest, _ := strings.Cut(server.String(), `?P<pid>`)
	own := first
	if rest != "" {
		own += `?P<pid>` + strings.ReplaceAll(rest, `?P<pid>`, `?:`)
	}
	return &author{
		server:     regexp.MustCompile(`^` + own + level),
		session:    regexp.MustCompile(`^` + session.String() + level),
		postmaster: postmaster,
	}
}

// level is the severity after a prefix.
const level = `(?:DEBUG\d?|LOG|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC|DETAIL|HINT|CONTEXT|STATEMENT|QUERY|LOCATION):  `

// own tells whether a line is certainly one of the server's own processes.
func (a *author) own(line string) bool {
	m := a.server.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	if i := a.server.SubexpIndex("pid"); i >= 0 && m[i] == a.postmaster {
		return true
	}
	return !a.session.MatchString(line)
}
