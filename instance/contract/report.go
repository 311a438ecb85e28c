package contract

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Failover is a change of the primary, planned or not.
type Failover struct {
	// From and To are the primaries before and after; From is empty if there was none.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Cause is why, in words.
	Cause string `json:"cause"`
	// Term of the Lease that began with it.
	Term int32 `json:"term"`
	// Detected is when the cause was noticed, Promoted when the new primary took writes.
	Detected time.Time `json:"detected,omitzero"`
	Promoted time.Time `json:"promoted,omitzero"`
	// LostBytes is how much of the log was lost at most, nil if that is not known; LostUnknown says why it is not.
	LostBytes   *int64 `json:"lostBytes,omitempty"`
	LostUnknown string `json:"lostUnknown,omitempty"`
}

// Equal tells whether both say the same, or both are nil.
func (f *Failover) Equal(other *Failover) bool {
	if f == nil || other == nil {
		return f == other
	}
	lost := f.LostBytes == other.LostBytes ||
		f.LostBytes != nil && other.LostBytes != nil && *f.LostBytes == *other.LostBytes
	return lost && f.From == other.From && f.To == other.To && f.Cause == other.Cause && f.Term == other.Term &&
		f.Detected.Equal(other.Detected) && f.Promoted.Equal(other.Promoted) && f.LostUnknown == other.LostUnknown
}

// Words of Report.Waiting: why nobody takes over. Others may come; they are shown with the report's message all the same.
const (
	// WaitingForQuorum: so few of the synchronous replicas vote that one which does not may have more commits.
	WaitingForQuorum = "WaitingForQuorum"
	// WaitingForInstances: the Lease was made anew, so every instance has to say what it has.
	WaitingForInstances = "WaitingForInstances"
	// WaitingForElection: another instance has more of the log and is to take over, or it is not settled yet who may.
	WaitingForElection = "WaitingForElection"
	// WaitingForLease: the primary is silent, and may still serve until its Lease ends.
	WaitingForLease = "WaitingForLease"
	// TooFarBehind: no replica is known to have all but the log that may be lost.
	TooFarBehind = "TooFarBehind"
	// FailoverDisabled: the primary is gone, and replicas are not to take over.
	FailoverDisabled = "FailoverDisabled"
)

// Quorum is what commits wait for: any Number of the Standbys.
type Quorum struct {
	Number int32 `json:"number"`
	// Standbys are names of instances, sorted.
	Standbys []string `json:"standbys"`
}

// maxStandbys is more than a cluster ever has, members that are just leaving included.
const maxStandbys = 16

// MaxFailoverText is how many characters each of a Failover's texts has at most.
const MaxFailoverText = 256

// reportForm are the forms of what an operator acts upon and tells of. A text has nothing that a terminal would obey.
var reportForm = struct{ word, systemID, version, instance, text *regexp.Regexp }{
	regexp.MustCompile(`^[A-Za-z]{0,64}$`), regexp.MustCompile(`^[0-9]{0,20}$`), regexp.MustCompile(`^[0-9.]{0,16}$`),
	regexp.MustCompile(`^[a-z0-9.-]{1,63}$`), regexp.MustCompile(`^\PC{0,256}$`),
}

// ParseReport reads a report; nil when there is none, or when it is not one that an agent would write: anybody who may
// change a pod's annotations can write another, and one that fits no status would keep the status from being written.
func ParseReport(text string) *Report {
	report := &Report{}
	if text == "" || json.Unmarshal([]byte(text), report) != nil || !report.wellFormed() {
		return nil
	}
	return report
}

func (r *Report) wellFormed() bool {
	return (r.Role == "" || r.Role == RolePrimary || r.Role == RoleReplica) &&
		reportForm.word.MatchString(string(r.State)) && reportForm.word.MatchString(r.Waiting) &&
		reportForm.systemID.MatchString(r.SystemID) && reportForm.version.MatchString(r.DataVersion) &&
		reportForm.text.MatchString(r.OrderProblem) && (r.LastFailover == nil || r.LastFailover.WellFormed()) &&
		plausible(r.WaitingSince) && (r.Synchronous == nil || r.Synchronous.wellFormed())
}

func (q *Quorum) wellFormed() bool {
	return 0 < q.Number && int(q.Number) <= len(q.Standbys) && len(q.Standbys) <= maxStandbys &&
		!slices.ContainsFunc(q.Standbys, func(name string) bool { return !reportForm.instance.MatchString(name) })
}

// WellFormed tells whether a report with the failover is read: a status can tell of it.
func (f *Failover) WellFormed() bool {
	return (f.From == "" || reportForm.instance.MatchString(f.From)) && reportForm.instance.MatchString(f.To) &&
		reportForm.text.MatchString(f.Cause) && reportForm.text.MatchString(f.LostUnknown) && f.Term > 0 &&
		(f.LostBytes == nil || *f.LostBytes >= 0) && plausible(f.Detected) && plausible(f.Promoted)
}

// plausible tells whether a time, if there is one, can be written into a status.
func plausible(t time.Time) bool {
	return t.IsZero() || t.UTC().Year() >= 2000 && t.UTC().Year() < 9999
}

// Words with which the Cause of a Failover begins; ": " and details may follow. Metrics count by them.
const (
	// CauseHandedOver is a change that was planned: the old primary stopped cleanly and named its successor, or was asked to.
	CauseHandedOver = "HandedOver"
	// CausePostgresFailed: the old primary's agent gave the Lease away, because its PostgreSQL died or let nobody in.
	CausePostgresFailed = "PostgresFailed"
	// CausePrimaryDead: the kubelet, or the next incarnation in the same pod, proved that the old primary ended.
	CausePrimaryDead = "PrimaryDead"
	// CausePrimarySilent: nothing was heard of the old primary, and its synchronous replicas turned from it.
	CausePrimarySilent = "PrimarySilent"
	// CauseLeaseExpired: the old primary did not renew its Lease.
	CauseLeaseExpired = "LeaseExpired"
	// CauseLeaseCleared: somebody cleared the Lease, or deleted it.
	CauseLeaseCleared = "LeaseCleared"
)

var causeWord = regexp.MustCompile(`^[A-Z][A-Za-z]{1,39}(:|$)`)

// CauseWord is the word with which the cause begins; Other when it begins with none.
func (f *Failover) CauseWord() string {
	word := strings.TrimSuffix(causeWord.FindString(f.Cause), ":")
	if word == "" {
		return "Other"
	}
	return word
}

// Planned tells whether the change was asked for.
func (f *Failover) Planned() bool { return f.CauseWord() == CauseHandedOver }
