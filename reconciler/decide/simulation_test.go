package decide_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

var config = decide.Config{
	Images:        map[string]string{"16": "postgres:16", "17": "postgres:17"},
	LeaseDuration: 10 * time.Second,
}

// fakeWorld is a StatefulSet's controller, a kubelet and agents in one: what a plan asks for happens a few turns later.
type fakeWorld struct {
	random  *rand.Rand
	cluster *v1alpha1.PostgresCluster
	set     *appsv1.StatefulSet
	pods    map[int32]*fakePod
	primary int32
	term    int32
	uids    int
	// wantedHash is the template that the renderer would make now.
	wantedHash string
	clock      time.Time
	// deaf agents carry out no switchover; weak targets do not take over.
	deaf, weak bool
	// asked counts the switchovers that were begun for each request of the user.
	asked map[string]int
	// members are what the agents were told, named what the Lease names: it follows a little later.
	members, named int32
}

type fakePod struct {
	uid, hash       string
	readyIn, goneIn int
	terminating     bool
	settings        string
	pending         bool
	lastOrder       string
}

func newWorld(seed uint64) *fakeWorld {
	replicas := int32(3)
	w := &fakeWorld{
		random: rand.New(rand.NewPCG(seed, 1)), pods: map[int32]*fakePod{}, wantedHash: "hash-0", term: 1,
		clock: time.Unix(0, 0), asked: map[string]int{}, deaf: seed%7 == 0, weak: seed%7 == 1,
		cluster: &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "cluster", Generation: 1},
			Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "1Gi"},
		},
	}
	return w
}

func (w *fakeWorld) snapshot() *snapshot.Cluster {
	s := &snapshot.Cluster{Object: w.cluster, StatefulSet: w.set}
	for ordinal, pod := range w.pods {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: s.Names().Instance(ordinal), UID: types.UID(pod.uid),
			Annotations: map[string]string{naming.AnnotationTemplateHash: pod.hash},
		}}
		ready := corev1.ConditionFalse
		if pod.readyIn == 0 {
			ready = corev1.ConditionTrue
		}
		object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		object.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: naming.ContainerPostgres, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
		if pod.terminating {
			object.DeletionTimestamp = &metav1.Time{}
			*object.DeletionTimestamp = metav1.Unix(1, 0)
		}
		report := &contract.Report{
			Role: contract.RoleReplica, State: contract.StateRunning, Term: w.term, SystemID: "1", DataVersion: "17",
			SettingsHash: pod.settings, LastOrder: pod.lastOrder,
		}
		if ordinal == w.primary && pod.readyIn == 0 {
			report.Role = contract.RolePrimary
			for member := range w.named {
				report.Named = append(report.Named, s.Names().Instance(member))
			}
		}
		if pod.pending {
			report.PendingRestart = []string{"max_connections"}
		}
		if pod.readyIn > 3 {
			report = nil // The agent has not started.
		}
		s.Instances = append(s.Instances, snapshot.Instance{
			Name: object.Name, Ordinal: ordinal, Pod: object, Report: report,
		})
	}
	s.Sort()
	return s
}

// carryOut does what the reconciler would do with a plan.
func (w *fakeWorld) carryOut(plan decide.Plan) {
	if !plan.Apply {
		return
	}
	if w.set == nil {
		w.set = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "set"}}
	}
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.set.Spec.Replicas = &plan.Replicas
	w.set.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: w.wantedHash}
	if plan.Restart != nil {
		ordinal, _ := naming.Cluster("db").Ordinal(plan.Restart.Instance)
		if pod := w.pods[ordinal]; pod != nil && types.UID(pod.uid) == plan.Restart.UID {
			w.kill(ordinal)
		}
	}
	w.members = plan.Members
	w.cluster = w.cluster.DeepCopy()
	w.cluster.Status.Switchover, w.cluster.Status.HandOver = plan.Switchover, plan.HandOver
	for _, order := range plan.Orders {
		ordinal, _ := naming.Cluster("db").Ordinal(order.Instance)
		if order.Kind == contract.OrderSwitchover {
			w.handOver(ordinal, order)
		} else if pod := w.pods[ordinal]; pod != nil && pod.lastOrder != order.ID && pod.readyIn == 0 {
			pod.lastOrder, pod.pending, pod.readyIn = order.ID, false, 1+w.random.IntN(3)
		}
	}
	for _, pod := range w.pods {
		if pod.readyIn == 0 && pod.settings != plan.SettingsHash {
			pod.settings, pod.pending = plan.SettingsHash, true
		}
	}
}

// handOver is what a primary does with an order to hand over.
func (w *fakeWorld) handOver(ordinal int32, order contract.Order) {
	pod := w.pods[ordinal]
	if pod == nil || pod.terminating || pod.readyIn > 0 || w.primary != ordinal || w.term != order.Term || pod.lastOrder == order.ID ||
		w.deaf || w.random.IntN(3) == 0 {
		return
	}
	pod.lastOrder = order.ID
	w.term++
	if r := w.cluster.Status.Switchover; r != nil && r.State == v1alpha1.SwitchoverRunning {
		w.asked[r.Request]++
	}
	target, _ := naming.Cluster("db").Ordinal(order.Target)
	if next := w.pods[target]; w.weak || next == nil || next.terminating || next.readyIn > 0 {
		return // It took its own Lease back.
	}
	w.primary = target
	pod.readyIn = 1 + w.random.IntN(3)
}

// kill begins the end of a pod; a ready replica takes over from a primary.
func (w *fakeWorld) kill(ordinal int32) {
	w.pods[ordinal].terminating, w.pods[ordinal].goneIn = true, 1+w.random.IntN(3)
	if ordinal != w.primary {
		return
	}
	for other := range int32(5) {
		if pod := w.pods[other]; pod != nil && other != ordinal && pod.readyIn == 0 && !pod.terminating {
			w.primary = other
			w.term++
			return
		}
	}
}

// turn lets a moment pass.
func (w *fakeWorld) turn() {
	w.clock = w.clock.Add(5 * time.Second)
	if pod := w.pods[w.primary]; pod != nil && pod.readyIn == 0 && w.random.IntN(2) == 0 {
		w.named = w.members
	}
	if w.set != nil && w.random.IntN(3) > 0 {
		w.set = w.set.DeepCopy()
		w.set.Status.ObservedGeneration = w.set.Generation
		for ordinal := range *w.set.Spec.Replicas {
			if w.pods[ordinal] == nil {
				w.uids++
				w.pods[ordinal] = &fakePod{
					uid: fmt.Sprint(w.uids), hash: w.set.Spec.Template.Annotations[naming.AnnotationTemplateHash],
					readyIn: 2 + w.random.IntN(4),
				}
			}
		}
		for ordinal, pod := range w.pods {
			if ordinal >= *w.set.Spec.Replicas && !pod.terminating {
				w.kill(ordinal)
			}
		}
	}
	for ordinal, pod := range w.pods {
		switch {
		case pod.terminating && pod.goneIn == 0:
			delete(w.pods, ordinal)
		case pod.terminating:
			pod.goneIn--
		case pod.readyIn > 0:
			pod.readyIn--
		}
	}
}

// change is what users and nodes do.
func (w *fakeWorld) change() {
	w.cluster = w.cluster.DeepCopy()
	switch w.random.IntN(5) {
	case 4:
		target := fmt.Sprintf("db-%d", w.random.IntN(6))
		if w.random.IntN(2) == 0 {
			target = naming.SwitchoverAny
		}
		w.cluster.Annotations = map[string]string{naming.AnnotationSwitchover: fmt.Sprint(target, naming.SwitchoverMark, w.random.Uint32())}
	case 0:
		replicas := int32(1 + w.random.IntN(5))
		w.cluster.Spec.Replicas = &replicas
	case 1:
		w.wantedHash = fmt.Sprintf("hash-%d", w.random.IntN(1000))
	case 2:
		w.cluster.Spec.Parameters = map[string]string{"max_connections": fmt.Sprint(100 + w.random.IntN(100))}
	case 3:
		for ordinal, pod := range w.pods {
			if !pod.terminating && w.random.IntN(2) == 0 {
				w.kill(ordinal)
				return
			}
		}
	}
	w.cluster.Generation++
}

func (w *fakeWorld) ready() (count int32) {
	for _, pod := range w.pods {
		if pod.readyIn == 0 && !pod.terminating {
			count++
		}
	}
	return count
}

func (w *fakeWorld) settled(plan decide.Plan) bool {
	if w.set == nil || plan.Restart != nil || len(plan.Orders) > 0 || w.ready() != *w.cluster.Spec.Replicas ||
		int32(len(w.pods)) != *w.cluster.Spec.Replicas {
		return false
	}
	for _, pod := range w.pods {
		if pod.hash != w.wantedHash || pod.settings != plan.SettingsHash || pod.pending {
			return false
		}
	}
	return true
}

func TestSimulation(t *testing.T) {
	const runs, changes, most = 300, 8, 400
	for seed := range uint64(runs) {
		w := newWorld(seed)
		left, since := changes, 0
		for {
			s := w.snapshot()
			plan := decide.Next(s, config, w.clock)
			check(t, seed, w, plan)
			if t.Failed() {
				return
			}
			settled := w.settled(plan)
			if settled && left == 0 {
				break
			}
			if left > 0 && (settled || w.random.IntN(25) == 0) {
				w.change()
				left, since = left-1, 0
			}
			w.carryOut(plan)
			w.turn()
			// A primary that does not hand over stays among too many instances until somebody moves it; here somebody does.
			if since++; since%50 == 0 && (w.deaf || w.weak) && w.primary >= *w.cluster.Spec.Replicas && w.pods[w.primary] != nil {
				w.kill(w.primary)
			}
			if since > most {
				t.Fatalf("seed %d: not settled %d turns after the last change: %+v", seed, most, plan.Steps)
			}
		}
	}
}

// check holds what no plan may break.
func check(t *testing.T, seed uint64, w *fakeWorld, plan decide.Plan) {
	t.Helper()
	if w.pods[w.primary] != nil && w.set != nil && plan.Replicas <= w.primary && *w.set.Spec.Replicas > w.primary {
		t.Errorf("seed %d: scales down to %d and removes the primary db-%d", seed, plan.Replicas, w.primary)
	}
	if w.set != nil && plan.Replicas < *w.set.Spec.Replicas && plan.Replicas < w.named {
		t.Errorf("seed %d: scales down to %d while the Lease names %d instances", seed, plan.Replicas, w.named)
	}
	disruptions := len(plan.Orders)
	if plan.Restart != nil {
		disruptions++
		ordinal, _ := naming.Cluster("db").Ordinal(plan.Restart.Instance)
		pod := w.pods[ordinal]
		if pod == nil {
			t.Errorf("seed %d: restarts %s, which is not there", seed, plan.Restart.Instance)
			return
		}
		others := w.ready()
		if pod.readyIn == 0 && !pod.terminating {
			others--
			if others < int32(len(w.pods))-1 {
				t.Errorf("seed %d: restarts %s while only %d of %d others are ready", seed, plan.Restart.Instance,
					others, len(w.pods)-1)
			}
		}
		if ordinal == w.primary && pod.readyIn == 0 {
			if !w.deaf && !w.weak && len(w.pods) > 1 && plan.HandOver.State != v1alpha1.SwitchoverFailed {
				t.Errorf("seed %d: deletes the pod of the primary db-%d, and nobody took over before: %+v", seed, ordinal, plan.Steps)
			}
			for other, pod := range w.pods {
				if other != ordinal && pod.hash != w.set.Spec.Template.Annotations[naming.AnnotationTemplateHash] {
					t.Errorf("seed %d: restarts the primary before db-%d", seed, other)
				}
			}
		}
	}
	for request, times := range w.asked {
		if times > 1 {
			t.Errorf("seed %d: switched over %d times for %s", seed, times, request)
		}
	}
	if disruptions > 1 {
		t.Errorf("seed %d: %d disruptive steps in one pass", seed, disruptions)
	}
}
