package status

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// lastFailover is the primary's record of the last failover, if it is another than the stored one and nobody asked for it.
func lastFailover(s *snapshot.Cluster, stored *v1alpha1.FailoverRecord) *v1alpha1.FailoverRecord {
	primary, known := s.Primary()
	if !known || primary.Report.LastFailover == nil {
		return stored.DeepCopy()
	}
	last := primary.Report.LastFailover
	if last.Planned() || last.Term > primary.Report.Term {
		return stored.DeepCopy()
	}
	return &v1alpha1.FailoverRecord{
		From: last.From, To: last.To, Cause: last.Cause, Term: last.Term, LostBytes: last.LostBytes, LostUnknown: last.LostUnknown,
		DetectedTime: microTime(last.Detected), PromotedTime: microTime(last.Promoted),
	}
}

// microTime has the precision that the API stores, so that what was stored is what is computed again.
func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

// FailedOver is the failover of which a status tells and the one before it did not; nil when there is none. One is told of
// when it is over.
func FailedOver(before, after *v1alpha1.PostgresClusterStatus) *v1alpha1.FailoverRecord {
	last, known := after.LastFailover, before.LastFailover
	if last == nil || last.PromotedTime == nil || known != nil && known.Term == last.Term && known.PromotedTime != nil {
		return nil
	}
	return last
}

// FailoverDuration is how long a failover took from its detection; known is false when the record does not say.
func FailoverDuration(record *v1alpha1.FailoverRecord) (d time.Duration, known bool) {
	if record.DetectedTime == nil || record.PromotedTime == nil {
		return 0, false
	}
	d = record.PromotedTime.Sub(record.DetectedTime.Time)
	return max(d, 0), true
}

// CauseWord is the word with which the cause of a failover begins.
func CauseWord(record *v1alpha1.FailoverRecord) string {
	return (&contract.Failover{Cause: record.Cause}).CauseWord()
}

func failoverEvent(record *v1alpha1.FailoverRecord) Event {
	var text strings.Builder
	fmt.Fprintf(&text, "instance %s took over", record.To)
	if record.From != "" && record.From != record.To {
		fmt.Fprintf(&text, " from %s", record.From)
	}
	if d, known := FailoverDuration(record); known {
		fmt.Fprintf(&text, " in %.1f s", d.Seconds())
	}
	if record.Cause != "" {
		fmt.Fprintf(&text, " (%s)", record.Cause)
	}
	switch lost := record.LostBytes; {
	case lost != nil && *lost == 0:
		text.WriteString("; no acknowledged commit is lost")
	case lost != nil:
		fmt.Fprintf(&text, "; at most %d bytes of write-ahead log are lost", *lost)
	case record.LostUnknown != "":
		fmt.Fprintf(&text, "; how much is lost is not known: %s", record.LostUnknown)
	}
	return Event{
		Transition: true, Type: corev1.EventTypeWarning, Reason: "FailedOver", Action: "Observe", Message: text.String(),
	}
}

// synchronousStatus is what commits wait for, as the primary says.
func synchronousStatus(s *snapshot.Cluster) *v1alpha1.SynchronousStatus {
	primary, known := s.Primary()
	if !known || primary.Report.Synchronous == nil {
		return nil
	}
	quorum := primary.Report.Synchronous
	return &v1alpha1.SynchronousStatus{Number: quorum.Number, Standbys: quorum.Standbys}
}

// waits are the conditions' reasons for what agents wait for, with what somebody can do about it.
var waits = map[string]struct{ reason, advice string }{
	contract.WaitingForQuorum: {
		v1alpha1.ReasonWaitingForQuorum, "; bring it back: it may have commits that were acknowledged",
	},
	contract.WaitingForInstances: {
		v1alpha1.ReasonWaitingForInstances, "; the Lease was lost, so every instance has to answer once",
	},
	contract.WaitingForLease: {v1alpha1.ReasonWaitingForLease, ""},
	contract.TooFarBehind: {
		v1alpha1.ReasonTooFarBehind, "; bring the old primary back, or raise spec.failover.maxLag and lose what is missing",
	},
	contract.FailoverDisabled: {
		v1alpha1.ReasonFailoverDisabled, "; bring the primary back, or set spec.failover.enabled to true",
	},
}

// waiting words why nobody takes over, as the instances say; empty when none does.
func waiting(s *snapshot.Cluster) decide.Block {
	instance, found := s.Waiting()
	if !found {
		return decide.Block{}
	}
	report := instance.Report
	wait, known := waits[report.Waiting]
	if !known {
		wait.reason = v1alpha1.ReasonNoPrimary
	}
	text := report.Message
	if text == "" {
		text = "it says " + report.Waiting
	}
	return decide.Block{Reason: wait.reason, Message: fmt.Sprintf("instance %s does not take over: %s%s", instance.Name, text, wait.advice)}
}

// waitingTrouble is what instances wait for so long that somebody has to act.
func waitingTrouble(s *snapshot.Cluster, now time.Time) decide.Block {
	if late, _ := s.WaitingLate(now); !late {
		return decide.Block{}
	}
	return waiting(s)
}
