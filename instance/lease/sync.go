package lease

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/acme/pg-operator/instance/contract"
)

// Sync is what commits wait for before they are acknowledged. The zero value is asynchronous: they wait for nobody.
type Sync struct {
	// Required: a commit that does not reach its quorum is never acknowledged. Otherwise the quorum is given up when
	// too few standbys are left, which is written here first.
	Required bool
	// InForce are all quorums one of which commits may wait for, at least since the term began; several while they
	// are being changed. An elected instance must have the commits of each. Empty is asynchronous, Required or not.
	InForce []Quorum
}

// Quorum is PostgreSQL's "ANY Number (Standbys)".
type Quorum struct {
	Number   int
	Standbys []string
}

// Limits of what is read from a Lease, which anybody may have written who has the right to.
const (
	maxSyncText = 16384
	// maxQuorums are all that there can be of four standbys. Only while who streams changes faster than PostgreSQL settles
	// are there more than two.
	maxQuorums  = 32
	maxStandbys = 16
)

var (
	quorumForm  = regexp.MustCompile(`^ANY ([1-9][0-9]?) \(([a-z0-9.,-]+)\)$`)
	memberForm  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	errSyncSize = fmt.Errorf("is longer than %d bytes", maxSyncText)
)

// MemberName tells whether name can be an instance's.
func MemberName(name string) bool { return memberForm.MatchString(name) }

// Synchronous tells whether every commit waits for a standby.
func (s Sync) Synchronous() bool { return len(s.InForce) > 0 }

// Names tells whether a quorum in force counts the instance.
func (s Sync) Names(instance string) bool {
	return slices.ContainsFunc(s.InForce, func(q Quorum) bool { return slices.Contains(q.Standbys, instance) })
}

// Equal tells whether both say the same, in the same order.
func (s Sync) Equal(other Sync) bool {
	return s.Required == other.Required && slices.EqualFunc(s.InForce, other.InForce, Quorum.Equal)
}

// Equal tells whether both are met by the same sets of standbys.
func (q Quorum) Equal(other Quorum) bool {
	return q.Number == other.Number && len(q.Standbys) == len(other.Standbys) &&
		(slices.Equal(q.Standbys, other.Standbys) || slices.Equal(sorted(q.Standbys), sorted(other.Standbys)))
}

// String is what PostgreSQL's synchronous_standby_names says, but for quotes around names.
func (q Quorum) String() string {
	return fmt.Sprintf("ANY %d (%s)", q.Number, strings.Join(sorted(q.Standbys), ","))
}

// String is the form that the Lease has, such as "required ANY 1 (db-1,db-2); ANY 1 (db-1)"; empty if asynchronous.
func (s Sync) String() string {
	if !s.Synchronous() {
		return ""
	}
	quorums := make([]string, 0, len(s.InForce))
	for _, q := range s.InForce {
		quorums = append(quorums, q.String())
	}
	mode := "preferred "
	if s.Required {
		mode = "required "
	}
	return mode + strings.Join(quorums, "; ")
}

// ParseSync reads what String writes.
func ParseSync(text string) (Sync, error) {
	if text == "" {
		return Sync{}, nil
	}
	if len(text) > maxSyncText {
		return Sync{}, errSyncSize
	}
	mode, rest, _ := strings.Cut(text, " ")
	if mode != "required" && mode != "preferred" {
		return Sync{}, fmt.Errorf("%.80q does not begin with required or preferred", text)
	}
	s := Sync{Required: mode == "required"}
	for part := range strings.SplitSeq(rest, "; ") {
		q, err := parseQuorum(part)
		if err != nil {
			return Sync{}, err
		}
		s.InForce = append(s.InForce, q)
	}
	if len(s.InForce) > maxQuorums {
		return Sync{}, fmt.Errorf("names %d quorums, more than %d", len(s.InForce), maxQuorums)
	}
	return s, nil
}

func parseQuorum(text string) (Quorum, error) {
	match := quorumForm.FindStringSubmatch(text)
	if match == nil {
		return Quorum{}, fmt.Errorf("%.80q is not of the form ANY 1 (name,name)", text)
	}
	number, err := strconv.Atoi(match[1])
	if err != nil {
		return Quorum{}, err
	}
	q := Quorum{Number: number, Standbys: sorted(strings.Split(match[2], ","))}
	switch {
	case len(q.Standbys) > maxStandbys:
		return Quorum{}, fmt.Errorf("%.80q names more than %d standbys", text, maxStandbys)
	case len(slices.Compact(slices.Clone(q.Standbys))) < len(q.Standbys):
		return Quorum{}, fmt.Errorf("%.80q names a standby twice", text)
	case q.Number > len(q.Standbys):
		return Quorum{}, errors.New("a quorum of more standbys than it names can never be met")
	case slices.ContainsFunc(q.Standbys, func(name string) bool { return !MemberName(name) }):
		return Quorum{}, fmt.Errorf("%.80q names something that is no instance", text)
	}
	return q, nil
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// Failover is the record of one change of the primary, as the one that took over wrote it. It is JSON in the Lease.
type Failover = contract.Failover
