package postgres

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// HBAProblem says what is wrong with, or risky in, one of the user's lines of pg_hba.conf. Values of options, which may
// be passwords, are never repeated.
type HBAProblem struct {
	// Line is the index of the line.
	Line int
	// Detail says what is wrong and what would be accepted.
	Detail string
	// Forbidden tells that Detail is about a rule of the operator's, and not about PostgreSQL's grammar.
	Forbidden bool
	// Syntax tells that PostgreSQL would refuse the line too.
	Syntax bool
}

// Bounds of the lines; the CRD has them too.
const (
	MaxHBALines  = 64
	maxHBALength = 1024
)

// Texts that the CRD has too, word for word.
const (
	oneLineDetail = "must be one line: write one list item for each line of pg_hba.conf"
	hostsslDetail = "must begin with hostssl, because all connections have TLS: write hostssl instead of host or hostgssenc; " +
		"local and hostnossl lines are not accepted"
)

// CheckHBA lists what is wrong with the user's lines of pg_hba.conf for a major version, one problem for each line.
func CheckHBA(major string, lines []string) []HBAProblem {
	var problems []HBAProblem
	for i, text := range lines {
		if _, problem := checkHBALine(major, text); problem != nil {
			problem.Line = i
			problems = append(problems, *problem)
		}
	}
	return problems
}

// hostsslStart is in the CRD too.
var hostsslStart = regexp.MustCompile(`^[ \t]*hostssl[ \t]`)

func checkHBALine(major, text string) (*hbaLine, *HBAProblem) {
	if detail := checkHBAText(text); detail != "" {
		return nil, &HBAProblem{Detail: detail, Forbidden: true}
	}
	line, err := parseHBALine(major, text)
	switch {
	case !hostsslStart.MatchString(text):
		return nil, &HBAProblem{Detail: hostsslDetail, Forbidden: true, Syntax: err != nil}
	case err != nil:
		return nil, &HBAProblem{Detail: err.Error(), Syntax: true}
	}
	if detail := line.policy(major); detail != "" {
		return nil, &HBAProblem{Detail: detail, Forbidden: true}
	}
	return line, nil
}

// checkHBAText judges the characters of a line.
func checkHBAText(text string) string {
	switch length := utf8.RuneCountInString(text); {
	case length == 0:
		return "is empty; " + hbaForm
	case length > maxHBALength:
		return fmt.Sprintf("has %d characters; at most %d are accepted", length, maxHBALength)
	case strings.ContainsAny(text, "\n\r"):
		return oneLineDetail
	case strings.HasSuffix(text, `\`):
		return `ends in \, which would join the next line to it; write each entry in one line`
	}
	for _, r := range text {
		if r != ' ' && r != '\t' && (!unicode.IsPrint(r) || r == utf8.RuneError) {
			return fmt.Sprintf("has the character %U, which cannot be seen and is no blank to PostgreSQL; use blanks and tabs", r)
		}
	}
	return ""
}

// policy says why the operator does not accept a line that PostgreSQL would.
func (l *hbaLine) policy(major string) string {
	switch {
	case l.readsFile:
		return "reads another file (include or @file), which the instances do not have; write the entries into spec.hba"
	case l.openQuote:
		return `has a quote (") without an end`
	case l.databases.has("replication"):
		return "has the database replication, which is for the instances themselves: who may read it gets all data; " +
			"logical replication connects to the database that it reads"
	}
	for _, f := range []struct {
		tokens []hbaToken
		what   string
	}{{l.databases.tokens, "database"}, {l.users.tokens, "user"}} {
		for _, t := range f.tokens {
			if detail := namePolicy(major, t, f.what); detail != "" {
				return detail
			}
		}
	}
	for _, t := range l.users.tokens {
		if strings.TrimPrefix(t.text, "+") == RoleReplication {
			return fmt.Sprintf("has the user %s, which is for the instances themselves; make a role of your own", RoleReplication)
		}
	}
	if detail := l.addressPolicy(); detail != "" {
		return detail
	}
	if reason := refusedMethods[l.method]; reason != "" {
		return fmt.Sprintf("has the method %s, which %s; %s", l.method, reason, acceptedMethods)
	}
	return l.optionPolicy()
}

// maxName is how many bytes PostgreSQL's names have.
const maxName = 63

func namePolicy(major string, t hbaToken, what string) string {
	switch {
	case t.text == "" || !t.quoted && t.text == "+" && what == "user":
		return fmt.Sprintf("has an empty name as a %s", what)
	case !t.isRegex():
		if len(strings.TrimPrefix(t.text, "+")) > maxName {
			return fmt.Sprintf("has the %s %s, which is longer than a name can be (%d bytes)", what, show(t.text), maxName)
		}
		return ""
	case CompareMajor(major, "16") < 0:
		return fmt.Sprintf("has %s as a %s: regular expressions came with PostgreSQL 16; write a list of names", show(t.text), what)
	case !plainRegex(t.text[1:]):
		return fmt.Sprintf("has %s as a %s; accepted are regular expressions of letters, digits, . [ ] ( ) | * + ? {n,m} ^ $ \\d \\w \\s",
			show(t.text), what)
	}
	return ""
}

var (
	// regexForm has what means the same to PostgreSQL and to Go, which is to judge the rest.
	regexForm = regexp.MustCompile(`^(?:[A-Za-z0-9_@. -]|\\[dDwWsS.$-]|\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_.$])+-?\]|` +
		`[()|^$]|[*+?]\??|\{[0-9]{1,3}(?:,[0-9]{0,3})?\}\??)+$`)
	// repeatedAnchor is an error to PostgreSQL only.
	repeatedAnchor = regexp.MustCompile(`(?:^|[^\\])[\^$][*+?{]`)
	regexBound     = regexp.MustCompile(`[{,]([0-9]+)`)
)

// maxRegexBound is the most that an expression of PostgreSQL's may repeat.
const maxRegexBound = 255

// plainRegex tells whether PostgreSQL is known to take a regular expression.
func plainRegex(text string) bool {
	if !regexForm.MatchString(text) || repeatedAnchor.MatchString(text) {
		return false
	}
	for _, bound := range regexBound.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(bound[1]); err != nil || n > maxRegexBound {
			return false
		}
	}
	_, err := regexp.Compile(text)
	return err == nil
}

const acceptedMethods = "accepted are scram-sha-256 (a password), cert (a client certificate) and reject"

// refusedMethods says why a method that PostgreSQL has is not accepted.
var refusedMethods = map[string]string{
	"trust":     "lets everybody in without any proof",
	"password":  "shows the server the password itself",
	"md5":       "is weak and going away",
	methodIdent: "believes what the client's host says",
	"gss":       "needs a Kerberos key table, which the instances do not have",
	"sspi":      "is for Windows",
	"pam":       "needs services of the operating system, which a container does not have",
	"bsd":       "is for OpenBSD",
	"ldap":      "passes passwords on to a directory, whose certificate and bind password the instances have no safe place for",
	"radius":    "has a secret in the line itself, which everybody who may read this object would see",
	"oauth":     "needs a validator library, which the instances do not have",
}

func (l *hbaLine) optionPolicy() string {
	for _, option := range l.options {
		switch name, value, _ := strings.Cut(option.text, "="); {
		case name == "map":
			return "has the option map, but there are no maps of yours; a certificate's common name must be the role's name"
		case name == "clientname" && value != "CN":
			return "has clientname=DN; accepted is CN: a certificate's common name must be the role's name"
		}
	}
	return ""
}

// fitsSuperuserUnnamed tells whether a line may fit the superuser without naming it.
func (l *hbaLine) fitsSuperuserUnnamed() bool {
	return !l.namesSuperuser() && slices.ContainsFunc(l.users.tokens, func(t hbaToken) bool {
		return t.is("all") || t.isRegex() || !t.quoted && strings.HasPrefix(t.text, "+")
	})
}

func (l *hbaLine) namesSuperuser() bool {
	return slices.ContainsFunc(l.users.tokens, func(t hbaToken) bool { return t.text == RoleSuperuser })
}

// HBARisks tells of lines that are accepted and open the superuser, or that can never fit.
func HBARisks(major string, lines []string) []HBAProblem {
	var risks []HBAProblem
	parsed := make([]*hbaLine, len(lines))
	for i, text := range lines {
		line, problem := checkHBALine(major, text)
		if problem != nil {
			continue
		}
		parsed[i] = line
		covered := slices.IndexFunc(parsed[:i], func(earlier *hbaLine) bool { return earlier != nil && earlier.covers(line) })
		switch {
		case covered >= 0:
			risks = append(risks, HBAProblem{Line: i, Detail: fmt.Sprintf(
				"is never used, because line %d of the list fits all that it would; put it before that one, or leave it out", covered)})
		case line.method != methodReject && line.namesSuperuser():
			risks = append(risks, HBAProblem{Line: i, Detail: fmt.Sprintf(
				"lets the superuser %s in over the network, who may read and change everything", RoleSuperuser)})
		}
	}
	return risks
}

// covers tells whether a line fits whatever another one does, as far as that can be seen.
func (l *hbaLine) covers(other *hbaLine) bool {
	return l.databases.covers(other.databases) && l.users.covers(other.users) && l.coversAddress(other)
}

func (f hbaField) covers(other hbaField) bool {
	return f.has("all") || !slices.ContainsFunc(other.tokens, func(t hbaToken) bool { return !slices.Contains(f.tokens, t) })
}

func (l *hbaLine) coversAddress(other *hbaLine) bool {
	if l.address.is("all") || l.address == other.address && l.mask == other.mask {
		return true
	}
	ours, ok := l.prefix()
	theirs, otherOK := other.prefix()
	return ok && otherOK && ours.Bits() <= theirs.Bits() && ours.Contains(theirs.Addr())
}
