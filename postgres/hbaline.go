package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// The grammar of pg_hba.conf, as PostgreSQL's hba.c reads it: what is an error here is one for the server too, and the
// other way round. What the operator refuses beyond that is in hbapolicy.go. A test asks a real server about each.

// hbaToken is a word of a line. quoted tells that it begins with a quote, which takes the meaning from keywords.
type hbaToken struct {
	text   string
	quoted bool
}

func (t hbaToken) is(keyword string) bool { return !t.quoted && t.text == keyword }

// isFile tells of @file, which stands for the words in a file.
func (t hbaToken) isFile() bool { return !t.quoted && len(t.text) > 1 && t.text[0] == '@' }

// isRegex tells of a regular expression; before PostgreSQL 16 it was a name like others. Quotes make no difference.
func (t hbaToken) isRegex() bool { return strings.HasPrefix(t.text, "/") }

// hbaField is a list of words, and how it is written.
type hbaField struct {
	tokens []hbaToken
	raw    string
}

func (f hbaField) has(keyword string) bool {
	return slices.ContainsFunc(f.tokens, func(t hbaToken) bool { return t.is(keyword) })
}

// hbaScanner cuts a line into fields, which blanks separate.
type hbaScanner struct {
	line string
	at   int
	// begin is where the last token begins.
	begin int
	// open tells of a quote without an end. To PostgreSQL it ends with the line.
	open bool
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// token is the next one; comma tells that it goes on with a list.
func (s *hbaScanner) token() (t hbaToken, comma, ok bool) {
	for s.at < len(s.line) && (isBlank(s.line[s.at]) || s.line[s.at] == ',') {
		s.at++
	}
	s.begin = s.at
	var text []byte
	inQuote, wasQuote, sawQuote := false, false, false
	for ; s.at < len(s.line) && (inQuote || !isBlank(s.line[s.at])); s.at++ {
		c := s.line[s.at]
		if c == '#' && !inQuote {
			s.line = s.line[:s.at]
			break
		}
		if c == ',' && !inQuote {
			comma = true
			break
		}
		if c != '"' || wasQuote {
			text = append(text, c)
		}
		// Two quotes inside quotes are one of the text.
		wasQuote = inQuote && c == '"' && !wasQuote
		if c == '"' {
			inQuote, sawQuote = !inQuote, true
			t.quoted = t.quoted || len(text) == 0
		}
	}
	s.open = s.open || inQuote
	t.text = string(text)
	return t, comma, sawQuote || len(text) > 0
}

// field is the next list of tokens; a comma goes on with it even over blanks.
func (s *hbaScanner) field() (f hbaField, ok bool) {
	begin := 0
	for more := true; more; {
		var t hbaToken
		if t, more, ok = s.token(); !ok {
			break
		}
		if len(f.tokens) == 0 {
			begin = s.begin
		}
		f.tokens = append(f.tokens, t)
		f.raw = s.line[begin:s.at]
	}
	return f, len(f.tokens) > 0
}

// hbaLine is a line of pg_hba.conf.
type hbaLine struct {
	kind             string
	databases, users hbaField
	// address is a keyword, host name, or address with or without its length; mask follows an address without.
	address, mask hbaToken
	addressRaw    string
	method        string
	options       []hbaToken
	// readsFile tells of words or lines that stand in another file; nothing more is known of such a line.
	readsFile bool
	// openQuote tells of a quote without an end.
	openQuote bool
}

// Kinds of connections.
const (
	kindLocal   = "local"
	kindHostSSL = "hostssl"
)

var hbaKinds = []string{kindLocal, "host", kindHostSSL, "hostnossl", "hostgssenc", "hostnogssenc"}

// parseHBALine reads a line that is neither empty nor goes on in the next one. Errors are those of PostgreSQL. The
// options of methods that need something outside of the server are not judged.
func parseHBALine(major, text string) (*hbaLine, error) {
	scanner := &hbaScanner{line: text}
	var fields []hbaField
	line := &hbaLine{}
	for {
		f, ok := scanner.field()
		if !ok {
			break
		}
		fields = append(fields, f)
		line.readsFile = line.readsFile || slices.ContainsFunc(f.tokens, hbaToken.isFile)
	}
	line.openQuote = scanner.open
	if len(fields) == 0 {
		return line, nil // Only blanks or a comment.
	}
	if CompareMajor(major, "16") >= 0 && len(fields) == 2 && slices.Contains(hbaIncludes, fields[0].tokens[0].text) {
		line.readsFile = true
	}
	if line.readsFile {
		return line, nil
	}
	return line, line.parse(major, fields)
}

var hbaIncludes = []string{"include", "include_if_exists", "include_dir"}

func (l *hbaLine) parse(major string, fields []hbaField) error {
	kind, err := single(&fields, "connection type")
	if err != nil {
		return err
	}
	if l.kind = kind.text; !slices.Contains(hbaKinds, l.kind) {
		return fmt.Errorf("begins with %s, which is not a type of connection; accepted is hostssl", show(kind.text))
	}
	for _, f := range []struct {
		field *hbaField
		what  string
	}{{&l.databases, "database"}, {&l.users, "user"}} {
		if len(fields) == 0 {
			return endsBefore(f.what)
		}
		*f.field, fields = fields[0], fields[1:]
	}
	if l.kind != kindLocal {
		if err = l.parseAddress(&fields); err != nil {
			return err
		}
	}
	method, err := single(&fields, "method")
	if err != nil {
		return err
	}
	l.method = method.text
	if err := l.checkMethod(major); err != nil {
		return err
	}
	for _, f := range fields {
		l.options = append(l.options, f.tokens...)
	}
	return l.checkOptions()
}

// single takes a field that must have one word.
func single(fields *[]hbaField, what string) (hbaToken, error) {
	if len(*fields) == 0 {
		return hbaToken{}, endsBefore(what)
	}
	f := (*fields)[0]
	*fields = (*fields)[1:]
	if len(f.tokens) > 1 {
		return hbaToken{}, fmt.Errorf("has a list as the %s; write one line for each", what)
	}
	return f.tokens[0], nil
}

func endsBefore(what string) error {
	return fmt.Errorf("ends before the %s; %s", what, hbaForm)
}

// hbaForm is what a line looks like.
const hbaForm = `a line is "hostssl DATABASE USER ADDRESS METHOD", such as "hostssl all reports 10.0.0.0/8 scram-sha-256"`

// show quotes a word for a message, unless it may hold an option's value: that could be a password.
func show(word string) string {
	const most = 64
	switch {
	case strings.Contains(word, "="):
		return "an option"
	case len(word) > most:
		return fmt.Sprintf("%q…", strings.ToValidUTF8(word[:most], ""))
	}
	return fmt.Sprintf("%q", word)
}

// Methods of authentication that are accepted, and others that the grammar treats specially.
const (
	methodScram  = "scram-sha-256"
	methodCert   = "cert"
	methodReject = "reject"
	methodPeer   = "peer"
	methodIdent  = "ident"
)

func (l *hbaLine) checkMethod(major string) error {
	since, known := hbaMethods[l.method]
	switch {
	case !known || CompareMajor(major, since) < 0:
		return fmt.Errorf("has %s as its method; %s", show(l.method), acceptedMethods)
	case l.method == methodPeer && l.kind != kindLocal:
		return fmt.Errorf("has the method peer, which is for Unix sockets only; use cert or scram-sha-256")
	case l.method == methodCert && l.kind != kindHostSSL:
		return fmt.Errorf("has the method cert, which needs hostssl")
	default:
		return nil
	}
}

// hbaMethods are all methods by the first major version that has them, as far as it matters.
var hbaMethods = map[string]string{
	methodScram: "", methodCert: "", methodReject: "", methodPeer: "", methodIdent: "", "trust": "", "password": "",
	"md5": "", "gss": "", "sspi": "", "pam": "", "bsd": "", "ldap": "", "radius": "", "oauth": "18",
}

// foreignMethods have options of their own, and need something that not every server was built with.
var foreignMethods = []string{"gss", "sspi", "pam", "bsd", "ldap", "radius", "oauth"}

func (l *hbaLine) checkOptions() error {
	if slices.Contains(foreignMethods, l.method) {
		return nil
	}
	for i, option := range l.options {
		name, value, found := strings.Cut(option.text, "=")
		which := fmt.Sprintf("option %d after the method %s", i+1, l.method)
		switch {
		case !found:
			return fmt.Errorf("has something after the method %s that is not name=value (word %d)", l.method, i+1)
		case name == "map" && slices.Contains([]string{methodIdent, methodPeer, methodCert}, l.method):
		case (name == "clientcert" || name == "clientname") && l.kind != kindHostSSL:
			return fmt.Errorf("has the option %s, which needs hostssl", name)
		case name == "clientcert" && value == "verify-ca" && l.method == methodCert:
			return fmt.Errorf("has clientcert=verify-ca; the method cert accepts clientcert=verify-full only")
		case name == "clientcert" && value != "verify-ca" && value != "verify-full":
			return fmt.Errorf("has another value of clientcert (%s) than verify-ca and verify-full", which)
		case name == "clientname" && value != "CN" && value != "DN":
			return fmt.Errorf("has another value of clientname (%s) than CN", which)
		case name != "clientcert" && name != "clientname":
			return fmt.Errorf("has an option that the method %s does not have (option %d); accepted are clientcert and clientname",
				l.method, i+1)
		}
	}
	return nil
}
