package decide_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

var noon = time.Unix(1_000_000, 0)

// three are three instances of one template that are well; db-1 is the primary.
func three(change func(*snapshot.Cluster)) *snapshot.Cluster {
	return observed(func(s *snapshot.Cluster) {
		replicas := int32(3)
		s.Object.Spec.Replicas, s.StatefulSet.Spec.Replicas = &replicas, &replicas
		s.Instances = append(s.Instances, snapshot.Instance{Name: "db-2", Ordinal: 2, Pod: ready()})
		template(s, "new", "new", "new", "new")
		for i := range s.Instances {
			s.Instances[i].Report = &contract.Report{
				Role: contract.RoleReplica, Term: 7, SystemID: "42", DataVersion: "17", State: contract.StateRunning,
			}
		}
		s.Instances[1].Report.Role = contract.RolePrimary
		change(s)
	})
}

func template(s *snapshot.Cluster, live string, pods ...string) {
	s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: live}
	for i, hash := range pods {
		s.Instances[i].Pod.Annotations = map[string]string{naming.AnnotationTemplateHash: hash}
	}
}

func ask(s *snapshot.Cluster, request string) {
	s.Object.Annotations = map[string]string{naming.AnnotationSwitchover: request}
}

// under is a change of primary from db-1 to db-2 that was ordered a while ago.
func under(request string, age time.Duration) *v1alpha1.SwitchoverStatus {
	return &v1alpha1.SwitchoverStatus{
		Request: request, State: v1alpha1.SwitchoverRunning, From: "db-1", To: "db-2", Term: 7,
		StartedTime: &metav1.Time{Time: noon.Add(-age)},
	}
}

func TestSwitchover(t *testing.T) {
	const id = "switchover-db-1-db-2-7"
	leads := func(s *snapshot.Cluster, ordinal int) {
		s.Instances[1].Report.Role = contract.RoleReplica
		s.Instances[ordinal].Report.Role, s.Instances[ordinal].Report.Term = contract.RolePrimary, 8
	}
	tests := map[string]struct {
		observed func(*snapshot.Cluster)
		// state of the request, and who is to take over; says is part of the message.
		state v1alpha1.SwitchoverState
		to    string
		says  string
		// ordered says that the primary is told.
		ordered bool
	}{
		"nobody asks":                    {observed: func(s *snapshot.Cluster) { s.Object.Status.Switchover = under("any", 0) }},
		"any is the best":                {observed: func(s *snapshot.Cluster) { ask(s, "any") }, state: "Running", to: "db-0"},
		"an instance":                    {observed: func(s *snapshot.Cluster) { ask(s, "db-2") }, state: "Running", to: "db-2"},
		"an instance, once more":         {observed: func(s *snapshot.Cluster) { ask(s, "db-2@4") }, state: "Running", to: "db-2"},
		"the primary":                    {observed: func(s *snapshot.Cluster) { ask(s, "db-1") }, state: "Done", to: "db-1", says: "already"},
		"no instance":                    {observed: func(s *snapshot.Cluster) { ask(s, "db-3") }, state: "Waiting", says: "db-3 is no instance"},
		"another cluster's":              {observed: func(s *snapshot.Cluster) { ask(s, "x-1") }, state: "Waiting", says: "x-1 is no instance"},
		"a very long wish":               {observed: func(s *snapshot.Cluster) { ask(s, strings.Repeat("ä", 200)) }, state: "Waiting"},
		"it was noted, and is ordered":   {observed: func(s *snapshot.Cluster) { ask(s, "any"); s.Object.Status.Switchover = under("any", 0) }, state: "Running", to: "db-2", ordered: true},
		"another request while one runs": {observed: func(s *snapshot.Cluster) { ask(s, "db-0"); s.Object.Status.Switchover = under("any", 0) }, state: "Running", to: "db-0"},
		"it is noted while the cluster rolls": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.HandOver = under("restart db-1 with template new", 0)
		}, state: "Waiting", says: "another change", ordered: true},
		"not streaming": {observed: func(s *snapshot.Cluster) {
			ask(s, "db-2")
			s.Instances[2].Report.State = contract.StateNotStreaming
		}, state: "Waiting", says: "db-2 does not stream"},
		"nobody streams": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Instances[0].Pod, s.Instances[2].Report = nil, nil
		}, state: "Waiting", says: "db-0 has no pod, db-2 has not reported"},
		"those that need no restart come first": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			template(s, "new", "old", "old", "new")
		}, state: "Running", to: "db-2"},
		"one instance": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			one := int32(1)
			s.Object.Spec.Replicas, s.StatefulSet.Spec.Replicas, s.Instances = &one, &one, s.Instances[:1]
			s.Instances[0].Report.Role = contract.RolePrimary
		}, state: "Waiting", says: "there is no other instance"},
		"no failover": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Spec.Failover = &v1alpha1.Failover{Enabled: new(false)}
		}, state: "Waiting", says: "spec.failover.enabled is false"},
		"no primary": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Instances[1].Report.Role = contract.RoleReplica
		}, state: "Waiting", says: "no instance is the primary"},
		"paused": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Spec.Paused = true
		}, state: "Waiting", says: "paused"},
		"paused while it runs": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Spec.Paused, s.Object.Status.Switchover = true, under("any", 0)
		}, state: "Running", to: "db-2"},
		"the primary cannot yet": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Second)
			s.Instances[1].Report.OrderProblem = "db-2 lacks 5 GB"
		}, state: "Running", to: "db-2", says: "db-2 lacks 5 GB", ordered: true},
		"the primary never could": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Minute)
			s.Instances[1].Report.OrderProblem = "db-2 lacks 5 GB"
		}, state: "Failed", to: "db-2", says: "db-2 lacks 5 GB"},
		"the primary does nothing": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Minute)
		}, state: "Failed", to: "db-2", says: "did not hand over"},
		"in between nobody leads": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Second)
			s.Instances[1].Report.Role, s.Instances[1].Report.LastOrder = "", id
		}, state: "Running", to: "db-2", ordered: true},
		"the target leads": {observed: func(s *snapshot.Cluster) {
			ask(s, "db-2")
			s.Object.Status.Switchover = under("db-2", time.Second)
			leads(s, 2)
		}, state: "Done", to: "db-2"},
		"another one than any's target leads": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Second)
			leads(s, 0)
		}, state: "Done", to: "db-2"},
		"another one than the target leads": {observed: func(s *snapshot.Cluster) {
			ask(s, "db-2")
			s.Object.Status.Switchover = under("db-2", time.Second)
			leads(s, 0)
		}, state: "Failed", to: "db-2", says: "db-0 became the primary"},
		"the old one leads again": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Second)
			s.Instances[1].Report.Term, s.Instances[1].Report.LastOrder = 8, id
		}, state: "Failed", to: "db-2", says: "did not take over in time"},
		"the old one took its Lease anew before it was told": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Second)
			s.Instances[1].Report.Term = 8
		}, state: "Running", to: "db-2", ordered: true},
		"what is done is not done again": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Hour)
			s.Object.Status.Switchover.State = v1alpha1.SwitchoverDone
		}, state: "Done", to: "db-2"},
		"nor what failed": {observed: func(s *snapshot.Cluster) {
			ask(s, "any")
			s.Object.Status.Switchover = under("any", time.Hour)
			s.Object.Status.Switchover.State = v1alpha1.SwitchoverFailed
		}, state: "Failed", to: "db-2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide.Next(three(test.observed), config, noon)
			if test.state == "" {
				if p.Switchover != nil || len(p.Orders) > 0 {
					t.Errorf("%+v, orders %v", p.Switchover, p.Orders)
				}
				return
			}
			if p.Switchover.State != test.state || p.Switchover.To != test.to || !strings.Contains(p.Switchover.Message, test.says) {
				t.Errorf("%+v, want %s to %q, %q", p.Switchover, test.state, test.to, test.says)
			}
			if ordered := len(p.Orders) > 0; ordered != test.ordered || p.Restart != nil {
				t.Errorf("orders %v, restart %v", p.Orders, p.Restart)
			}
			if test.state == v1alpha1.SwitchoverWaiting && len(p.Steps) == 0 && p.Apply && !strings.Contains(test.says, "no instance is") {
				t.Error("the plan does not tell of it")
			}
		})
	}
}

func TestRollHandsOver(t *testing.T) {
	const purpose = "restart db-1 with template new"
	tests := map[string]struct {
		observed func(*snapshot.Cluster)
		check    func(decide.Plan) bool
	}{
		"replicas first": {
			func(s *snapshot.Cluster) { template(s, "new", "new", "old", "old") },
			func(p decide.Plan) bool { return p.HandOver == nil && p.Restart.Instance == "db-2" },
		},
		"then the primary hands over": {
			func(s *snapshot.Cluster) { template(s, "new", "new", "old", "new") },
			func(p decide.Plan) bool {
				return p.Restart == nil && p.HandOver.To == "db-0" && p.HandOver.Request == purpose && len(p.Orders) == 0 &&
					p.Steps[0].Instance == "db-1" && p.Steps[0].Action == decide.ActionSwitchOver
			},
		},
		"by an order, and nothing else": {
			func(s *snapshot.Cluster) {
				template(s, "new", "new", "old", "new")
				s.Object.Status.HandOver = under(purpose, time.Second)
			},
			func(p decide.Plan) bool {
				return p.Restart == nil && len(p.Orders) == 1 && p.Orders[0] == contract.Order{
					ID: "switchover-db-1-db-2-7", Instance: "db-1", Kind: contract.OrderSwitchover, Target: "db-2", Term: 7,
				}
			},
		},
		"then it is a replica like others": {
			func(s *snapshot.Cluster) {
				template(s, "new", "new", "old", "new")
				s.Object.Status.HandOver = under(purpose, time.Second)
				s.Instances[1].Report.Role, s.Instances[2].Report.Role = contract.RoleReplica, contract.RolePrimary
			},
			func(p decide.Plan) bool {
				return p.Restart.Instance == "db-1" && p.HandOver.State == v1alpha1.SwitchoverDone && len(p.Orders) == 0
			},
		},
		"one that failed is not tried again": {
			func(s *snapshot.Cluster) {
				template(s, "new", "new", "old", "new")
				s.Object.Status.HandOver = under(purpose, time.Minute)
			},
			func(p decide.Plan) bool {
				return p.Restart.Instance == "db-1" && len(p.Orders) == 0 && strings.Contains(p.Steps[0].Reason, "did not hand over")
			},
		},
		"nobody may take over": {
			func(s *snapshot.Cluster) {
				template(s, "new", "new", "old", "new")
				s.Object.Spec.Failover = &v1alpha1.Failover{Enabled: new(false)}
			},
			func(p decide.Plan) bool {
				return p.Restart.Instance == "db-1" && strings.Contains(p.Steps[0].Reason, "spec.failover.enabled is false")
			},
		},
		"a single instance is restarted": {
			func(s *snapshot.Cluster) {
				one := int32(1)
				s.Object.Spec.Replicas, s.StatefulSet.Spec.Replicas, s.Instances = &one, &one, s.Instances[:1]
				s.Instances[0].Report.Role = contract.RolePrimary
				template(s, "new", "old")
			},
			func(p decide.Plan) bool {
				return p.Restart.Instance == "db-0" && strings.Contains(p.Steps[0].Reason, "there is no other instance")
			},
		},
		"no restart while the user's switchover runs": {
			func(s *snapshot.Cluster) {
				template(s, "new", "old", "old", "old")
				ask(s, "any")
				s.Object.Status.Switchover = under("any", time.Second)
			},
			func(p decide.Plan) bool { return p.Restart == nil && len(p.Orders) == 1 },
		},
		"settings restart a primary in its place": {
			func(s *snapshot.Cluster) {
				s.Instances[1].Report.PendingRestart = []string{"max_connections"}
				for i := range s.Instances {
					s.Instances[i].Report.SettingsHash = decide.Next(s, config, noon).SettingsHash
				}
			},
			func(p decide.Plan) bool {
				return p.HandOver == nil && len(p.Orders) == 1 && p.Orders[0].Kind == contract.OrderRestart
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if p := decide.Next(three(test.observed), config, noon); !test.check(p) {
				t.Errorf("hand-over %+v, orders %v, restart %v, steps %v", p.HandOver, p.Orders, p.Restart, p.Steps)
			}
		})
	}
}

func TestScaleDownHandsOver(t *testing.T) {
	const purpose = "remove db-1 for spec.replicas 1"
	lower := func(s *snapshot.Cluster) {
		one := int32(1)
		s.Object.Spec.Replicas = &one
	}
	tests := map[string]struct {
		observed func(*snapshot.Cluster)
		replicas int32
		blocked  string
		to       string
	}{
		"first another primary": {func(*snapshot.Cluster) {}, 3, "", "db-0"},
		"who stays":             {func(s *snapshot.Cluster) { template(s, "new", "old", "new", "new") }, 3, "", "db-0"},
		"while it is ordered":   {func(s *snapshot.Cluster) { s.Object.Status.HandOver = under(purpose, time.Second) }, 3, "", "db-2"},
		"nobody knows who leads": {
			func(s *snapshot.Cluster) { s.Instances[1].Report.Role = contract.RoleReplica }, 3, "", "",
		},
		"the primary does not serve": {
			func(s *snapshot.Cluster) {
				s.Instances[1].Report.Role, s.Instances[0].Report.Role = contract.RoleReplica, contract.RolePrimary
				s.Instances[0].Pod.Status.Conditions[0].Status = corev1.ConditionFalse
			}, 3, "", "",
		},
		"then fewer instances": {
			func(s *snapshot.Cluster) {
				s.Object.Status.HandOver = under(purpose, time.Second)
				s.Object.Status.HandOver.To = "db-0"
				s.Instances[1].Report.Role, s.Instances[0].Report.Role = contract.RoleReplica, contract.RolePrimary
			}, 1, "", "db-0",
		},
		"the Lease names more instances": {
			func(s *snapshot.Cluster) {
				s.Instances[1].Report.Role, s.Instances[0].Report.Role = contract.RoleReplica, contract.RolePrimary
				s.Instances[0].Report.Named = []string{"db-0", "db-2"}
			}, 3, "", "",
		},
		"the Lease names no more": {
			func(s *snapshot.Cluster) {
				s.Instances[1].Report.Role, s.Instances[0].Report.Role = contract.RoleReplica, contract.RolePrimary
				s.Instances[0].Report.Named = []string{"db-0"}
			}, 1, "", "",
		},
		"nobody who stays streams": {
			func(s *snapshot.Cluster) { s.Instances[0].Report.State = contract.StateNotStreaming }, 2, "db-0 does not stream", "",
		},
		"it failed": {
			func(s *snapshot.Cluster) {
				s.Object.Status.HandOver = under(purpose, 2*time.Minute)
			}, 2, "did not hand over", "db-2",
		},
		"it failed some time ago": {
			func(s *snapshot.Cluster) {
				s.Object.Status.HandOver = under(purpose, 6*time.Minute)
				s.Object.Status.HandOver.State = v1alpha1.SwitchoverFailed
			}, 3, "", "db-0",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide.Next(three(func(s *snapshot.Cluster) { lower(s); test.observed(s) }), config, noon)
			if members := min(p.Replicas, 1); strings.HasPrefix(name, "the Lease names") && p.Members != members {
				t.Errorf("the agents are told of %d members", p.Members)
			}
			blocked := ""
			for _, block := range p.Blocks {
				blocked = block.Message
			}
			to := ""
			if p.HandOver != nil {
				to = p.HandOver.To
			}
			if p.Replicas != test.replicas || (blocked != "") != (test.blocked != "") || !strings.Contains(blocked, test.blocked) || to != test.to {
				t.Errorf("replicas %d, want %d; to %q, want %q; blocked %q", p.Replicas, test.replicas, to, test.to, blocked)
			}
			if test.blocked != "" && p.HandOver != nil && p.RequeueAfter == 0 {
				t.Error("it is never tried again")
			}
		})
	}
}

// TestNothingIsDisturbedDuringAnElection: any instance that runs may be the next primary, or the only one with the newest data.
func TestNothingIsDisturbedDuringAnElection(t *testing.T) {
	elects := func(change func(*snapshot.Cluster)) decide.Plan {
		return decide.Next(three(func(s *snapshot.Cluster) {
			template(s, "new", "old", "old", "old")
			for i := range s.Instances {
				s.Instances[i].Report.Role, s.Instances[i].Report.State = "", contract.StateWaiting
				s.Instances[i].Pod.Status.Conditions[0].Status = corev1.ConditionFalse
			}
			change(s)
		}), config, noon)
	}
	if p := elects(func(*snapshot.Cluster) {}); p.Restart != nil || len(p.Orders) > 0 || !strings.Contains(p.Steps[0].Reason, "not before") {
		t.Errorf("restart %v, orders %v, steps %v", p.Restart, p.Orders, p.Steps)
	}
	if p := elects(func(s *snapshot.Cluster) { s.Instances[0].Report.State = contract.StateFailed }); p.Restart == nil ||
		p.Restart.Instance != "db-0" {
		t.Errorf("an instance that cannot go on may have a cure in the new template: %v", p.Restart)
	}
	if p := elects(func(s *snapshot.Cluster) { s.Instances[2].Pod.Status.ContainerStatuses = nil }); p.Restart == nil ||
		p.Restart.Instance != "db-2" {
		t.Errorf("an instance that does not run may have a cure in the new template: %v", p.Restart)
	}
}
