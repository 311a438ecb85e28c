package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// A planned change of primary is written down in the status first, and ordered in the next pass, when the status has it:
// an operator that ends in between neither forgets nor repeats it. The agent carries out an order in the term that it
// names and in no other, so a late one does no harm.

// handOverPatience is how long a primary has to carry out an order before it is withdrawn.
const handOverPatience = time.Minute

// handOverRetry is how long after one that failed the operator tries again, where it has no other way.
const handOverRetry = 5 * time.Minute

// record is a planned change of primary as the status has it.
type record = v1alpha1.SwitchoverStatus

// wish is for another primary.
type wish struct {
	// request tells this wish from others.
	request string
	// target is the wanted primary; empty for the best one.
	target string
	// members is how many instances there will be: those of higher ordinals do not take over.
	members int32
}

func running(r *record) bool { return r != nil && r.State == v1alpha1.SwitchoverRunning }

// moving says that the primary is about to change because that was ordered.
func (p *Plan) moving() bool { return running(p.Switchover) || running(p.HandOver) }

// goOn follows the operator's own change of primary.
func (p *Plan) goOn(s *snapshot.Cluster, now time.Time) {
	p.HandOver = s.Object.Status.HandOver.DeepCopy()
	if running(p.HandOver) {
		p.track(s, p.HandOver, "", now)
	}
}

// handOver is what becomes of the operator's own wish, which says what for, and for which primary.
func (p *Plan) handOver(s *snapshot.Cluster, purpose string, members int32, now time.Time) record {
	w := wish{request: purpose, members: members}
	if last := p.HandOver; last != nil && last.Request == w.request {
		age := now.Sub(started(last))
		if running(last) || last.State == v1alpha1.SwitchoverFailed && age < handOverRetry {
			p.lookAgain(handOverRetry - age)
			return *last
		}
	}
	if p.moving() {
		return record{State: v1alpha1.SwitchoverWaiting, Message: "another change of primary is going on"}
	}
	next := p.begin(s, w, now)
	if running(&next) {
		p.HandOver = &next
		p.tell(&next, handOverPatience)
	}
	return next
}

// track finds out how a change of primary that was ordered goes on, and repeats the order as long as it does.
func (p *Plan) track(s *snapshot.Cluster, r *record, target string, now time.Time) {
	end := func(state v1alpha1.SwitchoverState, message string) { r.State, r.Message = state, message }
	primary, known := s.Primary()
	age := now.Sub(started(r))
	switch {
	case known && (primary.Name == r.To || primary.Name != r.From && target == ""):
		end(v1alpha1.SwitchoverDone, "")
		return
	case known && primary.Name != r.From:
		end(v1alpha1.SwitchoverFailed, fmt.Sprintf("instance %s became the primary meanwhile", primary.Name))
		return
	case known && primary.Report.Term > r.Term && primary.Report.LastOrder == switchoverID(r):
		end(v1alpha1.SwitchoverFailed, fmt.Sprintf("instance %s did not take over in time; %s goes on as the primary", r.To, r.From))
		return
	case age >= handOverPatience && known && primary.Report.OrderProblem != "":
		end(v1alpha1.SwitchoverFailed, primary.Report.OrderProblem)
		return
	case age >= handOverPatience:
		end(v1alpha1.SwitchoverFailed, fmt.Sprintf("instance %s did not hand over within %s", r.From, handOverPatience))
		return
	case known:
		// It may have taken its own Lease again before it got the order.
		r.Term, r.Message = primary.Report.Term, primary.Report.OrderProblem
	}
	p.tell(r, max(handOverPatience-age, time.Second))
	p.Orders = append(p.Orders, contract.Order{
		ID: switchoverID(r), Instance: r.From, Kind: contract.OrderSwitchover, Target: r.To, Term: r.Term,
	})
}

// begin is the record of a wish that nothing was done for yet.
func (p *Plan) begin(s *snapshot.Cluster, w wish, now time.Time) record {
	r := record{Request: w.request, State: v1alpha1.SwitchoverWaiting}
	primary, known := s.Primary()
	switch {
	case !known:
		r.Message = "no instance is the primary"
		return r
	case w.target == primary.Name:
		r.State, r.To, r.Message = v1alpha1.SwitchoverDone, primary.Name, "it is the primary already"
		return r
	case !s.Object.Spec.FailoverEnabled():
		r.Message = "spec.failover.enabled is false, so that no other instance takes over"
		return r
	case !primary.Ready():
		r.Message = fmt.Sprintf("the primary %s is not ready", primary.Name)
		return r
	}
	target, problem := p.successor(s, primary, w)
	if problem != "" {
		r.Message = problem
		return r
	}
	r.State, r.From, r.To = v1alpha1.SwitchoverRunning, primary.Name, target.Name
	r.Term, r.StartedTime = primary.Report.Term, &metav1.Time{Time: now.Truncate(time.Second)}
	return r
}

// successor is the instance that a primary hands over to, or why there is none.
func (p *Plan) successor(s *snapshot.Cluster, primary snapshot.Instance, w wish) (target snapshot.Instance, problem string) {
	var able []snapshot.Instance
	var problems []string
	for ordinal := range w.members {
		name := s.Names().Instance(ordinal)
		if name == primary.Name || w.target != "" && name != w.target {
			continue
		}
		instance, _ := s.Instance(ordinal)
		if problem = unable(instance); problem != "" {
			problems = append(problems, name+" "+problem)
			continue
		}
		able = append(able, instance)
	}
	switch {
	case len(able) > 0:
		return slices.MinFunc(able, p.preference(s)), ""
	case len(problems) > 0:
		return target, strings.Join(problems, ", ")
	case w.target != "":
		return target, fmt.Sprintf("%s is no instance of this cluster", w.target)
	default:
		return target, "there is no other instance"
	}
}

// unable says why an instance cannot take over; empty when it streams. How far it is behind, the primary judges.
func unable(instance snapshot.Instance) string {
	report := instance.Report
	switch {
	case instance.Pod == nil:
		return "has no pod"
	case instance.Terminating():
		return "is being stopped"
	case report == nil:
		return "has not reported"
	case report.Role != contract.RoleReplica || report.State != contract.StateRunning || !instance.Ready():
		return "does not stream"
	}
	return ""
}

// preference orders those that can take over: first who need not be restarted soon, then by ordinal.
func (p *Plan) preference(s *snapshot.Cluster) func(a, b snapshot.Instance) int {
	wanted := liveTemplate(s)
	debts := func(i snapshot.Instance) (debts int) {
		if i.TemplateHash() != wanted || s.Altered(i) {
			debts += 2
		}
		if i.Report.SettingsHash != p.SettingsHash || len(i.Report.PendingRestart) > 0 {
			debts++
		}
		return debts
	}
	return func(a, b snapshot.Instance) int {
		return cmp.Or(cmp.Compare(debts(a), debts(b)), cmp.Compare(a.Ordinal, b.Ordinal))
	}
}

// tell puts a running change of primary into the plan, and has it looked at again when the patience with it ends.
func (p *Plan) tell(r *record, left time.Duration) {
	p.step(r.From, ActionSwitchOver, fmt.Sprintf("hands over to %s (%s)", r.To, r.Request))
	p.lookAgain(left)
}

// switchoverID is another one in each term: what was carried out once is not what is asked for later.
func switchoverID(r *record) string { return fmt.Sprintf("switchover-%s-%s-%d", r.From, r.To, r.Term) }

func started(r *record) time.Time {
	if r.StartedTime == nil {
		return time.Time{}
	}
	return r.StartedTime.Time
}
