package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

// leads makes an instance the primary of a term, and the others replicas.
func leads(s *snapshot.Cluster, ordinal int, term int32) *contract.Report {
	for i := range s.Instances {
		s.Instances[i].Report.Role = contract.RoleReplica
	}
	report := s.Instances[ordinal].Report
	report.Role, report.Term = contract.RolePrimary, term
	return report
}

// takenOver is the record of a failover to db-1.
func takenOver(term int32) *contract.Failover {
	return &contract.Failover{
		From: "db-0", To: "db-1", Cause: contract.CausePostgresFailed + ": the postmaster of db-0 ended", Term: term,
		Detected: now.Add(-2 * time.Second), Promoted: now.Add(-1200 * time.Millisecond), LostBytes: new(int64(0)),
	}
}

func TestLastFailover(t *testing.T) {
	tests := map[string]struct {
		change func(*contract.Failover)
		stored *v1alpha1.FailoverRecord
		// taken says that the status is the report's; told are parts of the event, none for no event.
		taken bool
		told  []string
	}{
		"new": {taken: true, told: []string{"db-1 took over from db-0 in 0.8 s", "PostgresFailed: the postmaster", "no acknowledged commit is lost"}},
		"another than the last": {
			stored: &v1alpha1.FailoverRecord{To: "db-0", Term: 3, PromotedTime: &metav1.MicroTime{Time: now}}, taken: true, told: []string{"db-1"},
		},
		"told already": {
			stored: &v1alpha1.FailoverRecord{To: "db-1", Term: 5, PromotedTime: &metav1.MicroTime{Time: now}}, taken: true,
		},
		"not over yet": {change: func(f *contract.Failover) { f.Promoted = time.Time{} }, taken: true},
		"over now":     {stored: &v1alpha1.FailoverRecord{To: "db-1", Term: 5}, taken: true, told: []string{"db-1"}},
		"of some loss": {
			change: func(f *contract.Failover) { f.LostBytes = new(int64(70)) }, taken: true, told: []string{"at most 70 bytes"},
		},
		"of unknown loss": {
			change: func(f *contract.Failover) { f.LostBytes, f.LostUnknown = nil, "db-0 was silent" }, taken: true,
			told: []string{"not known: db-0 was silent"},
		},
		"from nobody":               {change: func(f *contract.Failover) { f.From = "" }, taken: true, told: []string{"db-1 took over in 0.8 s"}},
		"to itself":                 {change: func(f *contract.Failover) { f.From = "db-1" }, taken: true, told: []string{"db-1 took over in 0.8 s"}},
		"asked for":                 {change: func(f *contract.Failover) { f.Cause = contract.CauseHandedOver }},
		"of a term that is to come": {change: func(f *contract.Failover) { f.Term = 6 }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			record := takenOver(5)
			if test.change != nil {
				test.change(record)
			}
			leads(s, 1, 5).LastFailover = record
			s.Object.Status.Primary, s.Object.Status.LastFailover = "db-1", test.stored
			got, told := status.Compute(s, next(s), &outcome.Result{}, now)
			if last := got.LastFailover; test.taken != (last != nil && last.Term == record.Term && last.Cause == record.Cause) {
				t.Errorf("the status has %+v", last)
			}
			var failedOver []string
			for _, event := range told {
				if event.Reason == "FailedOver" {
					failedOver = append(failedOver, event.Message)
				}
			}
			if want := min(1, len(test.told)); len(failedOver) != want {
				t.Fatalf("told %q, want %d", failedOver, want)
			}
			for _, part := range test.told {
				if !strings.Contains(failedOver[0], part) {
					t.Errorf("told %q, want %q in it", failedOver[0], part)
				}
			}
			// What was stored says the same again, also after it went through the API server.
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			s.Object.Status = v1alpha1.PostgresClusterStatus{}
			if err := json.Unmarshal(text, &s.Object.Status); err != nil {
				t.Fatal(err)
			}
			again, told := status.Compute(s, next(s), &outcome.Result{}, now.Add(time.Minute))
			if len(told) > 0 || !equality.Semantic.DeepEqual(again.LastFailover, s.Object.Status.LastFailover) {
				t.Errorf("again it tells %v, and has %+v", told, again.LastFailover)
			}
		})
	}
}

// TestStatusOfAFailover goes through one: ready is only who has a primary that serves, and everything is in place again.
func TestStatusOfAFailover(t *testing.T) {
	s := healthy()
	waits := func(word, text string, since time.Duration) func() {
		return func() {
			report := s.Instances[1].Report
			report.State, report.Waiting, report.Message, report.WaitingSince = contract.StateWaiting, word, text, now.Add(-since)
		}
	}
	steps := []struct {
		name    string
		do      func()
		ready   string
		message string
		kstatus kstatus.Status
		events  string
	}{
		{
			name: "the primary's node is gone", ready: v1alpha1.ReasonNoPrimary, kstatus: kstatus.InProgressStatus, events: "NoPrimary",
			do: func() { notReady(s, 0); notReady(s, 1); s.Instances[1].Report.State = contract.StateNotStreaming },
		},
		{
			name: "its Lease has not ended", do: waits(contract.WaitingForLease, "the Lease of db-0 has not ended", time.Second),
			ready: v1alpha1.ReasonWaitingForLease, kstatus: kstatus.InProgressStatus, events: "WaitingForLease",
		},
		{
			name: "a vote is missing", do: waits(contract.WaitingForQuorum, "db-2 does not answer", time.Second),
			ready: v1alpha1.ReasonWaitingForQuorum, kstatus: kstatus.InProgressStatus, events: "WaitingForQuorum",
			message: "instance db-1 does not take over: db-2 does not answer; bring it back",
		},
		{
			name: "for more than a minute", do: waits(contract.WaitingForQuorum, "db-2 does not answer", 2*time.Minute),
			ready: v1alpha1.ReasonWaitingForQuorum, kstatus: kstatus.FailedStatus,
			message: "instance db-1 does not take over: db-2 does not answer; bring it back",
		},
		{
			name: "a newer agent's reason", do: waits("WaitingForGodot", "he is late", time.Second),
			ready: v1alpha1.ReasonNoPrimary, kstatus: kstatus.InProgressStatus, events: "NoPrimary", message: "he is late",
		},
		{
			name: "a replica takes over", ready: v1alpha1.ReasonHealing, kstatus: kstatus.InProgressStatus, events: "Healing PrimaryChanged FailedOver",
			do: func() {
				report := leads(s, 1, 2)
				s.Instances[0].Report.Role = contract.RolePrimary // Its last word.
				report.State, report.Waiting, report.Message, report.WaitingSince = contract.StateRunning, "", "", time.Time{}
				report.LastFailover = takenOver(2)
				s.Instances[1].Pod.Status.Conditions[0].Status = "True"
			},
		},
		{
			name: "the old primary is back", ready: v1alpha1.ReasonAllReplicasReady, kstatus: kstatus.CurrentStatus, events: "AllReplicasReady",
			do: func() {
				s.Instances[0].Report.Role, s.Instances[0].Report.Term = contract.RoleReplica, 2
				s.Instances[0].Pod.Status.Conditions[0].Status = "True"
			},
		},
	}
	s.Object.Status, _ = status.Compute(s, next(s), &outcome.Result{}, now)
	for _, step := range steps {
		step.do()
		got, told := status.Compute(s, next(s), &outcome.Result{}, now)
		ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
		var reasons []string
		for _, event := range told {
			reasons = append(reasons, event.Reason)
		}
		if ready.Reason != step.ready || strings.Join(reasons, " ") != step.events || !strings.Contains(ready.Message, step.message) {
			t.Errorf("%s: %s, told %q", step.name, worded(got.Conditions), reasons)
		}
		checkRules(t, s, got)
		if k := judgedByKstatus(t, s.Object, got); k != step.kstatus {
			t.Errorf("%s: kstatus says %s, want %s", step.name, k, step.kstatus)
		}
		degraded := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionDegraded)
		if (degraded.Status == metav1.ConditionTrue) == (ready.Status == metav1.ConditionTrue) ||
			degraded.Status == metav1.ConditionTrue && degraded.Reason != step.ready {
			t.Errorf("%s: Degraded is %s, %s", step.name, degraded.Status, degraded.Reason)
		}
		s.Object.Status = got
	}
}

// TestWhoWaitsForAnother: an instance that knows less than another one is not quoted.
func TestWhoWaitsForAnother(t *testing.T) {
	s := healthy()
	notReady(s, 0)
	s.Instances[0].Report.Waiting, s.Instances[0].Report.Message = contract.WaitingForElection, "waits for db-1"
	for _, test := range []struct{ waiting, reason, says string }{
		{"", v1alpha1.ReasonNoPrimary, "instance db-0 does not take over: waits for db-1"},
		{contract.TooFarBehind, v1alpha1.ReasonTooFarBehind, "instance db-1 does not take over: lacks much"},
	} {
		s.Instances[1].Report.Waiting, s.Instances[1].Report.Message = test.waiting, "lacks much"
		got, _ := status.Compute(s, next(s), &outcome.Result{}, now)
		ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != test.reason || !strings.Contains(ready.Message, test.says) {
			t.Errorf("%s: %s", test.waiting, worded(got.Conditions))
		}
	}
}

// TestWaitingIsLookedAtAgain: no event tells that a minute is over.
func TestWaitingIsLookedAtAgain(t *testing.T) {
	s := healthy()
	notReady(s, 0)
	s.Instances[1].Report.Waiting, s.Instances[1].Report.WaitingSince = contract.WaitingForQuorum, now.Add(-50*time.Second)
	if plan := next(s); plan.RequeueAfter != 10*time.Second {
		t.Errorf("looked at again after %s", plan.RequeueAfter)
	}
	s.Instances[1].Report.WaitingSince = now.Add(-time.Hour)
	if plan := next(s); plan.RequeueAfter != 0 {
		t.Errorf("looked at again after %s, when all is said", plan.RequeueAfter)
	}
}

// TestCommitsThatWait: a primary that serves reads only, so to speak, is not called healing.
func TestCommitsThatWait(t *testing.T) {
	tests := map[string]struct {
		durability v1alpha1.Durability
		missing    bool
		want       string
	}{
		"required, the replica is away":  {durability: v1alpha1.DurabilityRequired, missing: true, want: v1alpha1.ReasonWaitingForReplicas},
		"omitted, the replica is away":   {missing: true, want: v1alpha1.ReasonWaitingForReplicas},
		"preferred, the replica is away": {durability: v1alpha1.DurabilityPreferred, missing: true, want: v1alpha1.ReasonHealing},
		"required, all are there":        {durability: v1alpha1.DurabilityRequired, want: v1alpha1.ReasonAllReplicasReady},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			s.Object.Spec.Synchronous = &v1alpha1.SynchronousReplication{Mode: v1alpha1.SynchronousModeQuorum, Durability: test.durability}
			for i := range s.Instances {
				s.Instances[i].Report.SettingsHash = next(s).SettingsHash
			}
			s.Instances[0].Report.Synchronous = &contract.Quorum{Number: 1, Standbys: []string{"db-1"}}
			if test.missing {
				notReady(s, 1)
			}
			got, _ := status.Compute(s, next(s), &outcome.Result{}, now)
			if ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady); ready.Reason != test.want {
				t.Errorf("%s", worded(got.Conditions))
			}
			if got.Synchronous == nil || got.Synchronous.Number != 1 || strings.Join(got.Synchronous.Standbys, " ") != "db-1" {
				t.Errorf("commits wait for %+v", got.Synchronous)
			}
			checkRules(t, s, got)
		})
	}
}
