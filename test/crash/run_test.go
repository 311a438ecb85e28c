package crash_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/operator"
	"github.com/acme/pg-operator/test/world"
)

// settled is how long an operator that is done writes nothing: details of a status may wait for a second.
const settled = 1200 * time.Millisecond

// run is one cluster's way through a flow.
type run struct {
	t         *testing.T
	namespace string
	world     *world.World
	cluster   *v1alpha1.PostgresCluster
	life      *life
	stop      func()
}

// result is what a run ended in.
type result struct {
	state   string
	writes  int
	crashed bool
}

// start runs an operator.
func (r *run) start() {
	r.life = newLife()
	r.stop = operator.Start(r.t, plane, r.namespace, operator.Options(), func(config *rest.Config, _ *ctrl.Options) {
		config.Wrap(r.world.Waking)
		config.Wrap(r.life.wrap)
	})
}

// through brings a cluster through a flow in which the operator's life ends at a point. want is the state to end in;
// when it is empty, the state is whatever it is once the operator is done.
func (f *flow) through(t *testing.T, end point, want string) result {
	t.Helper()
	r := &run{t: t, namespace: plane.Namespace(t)}
	r.world = world.Start(t, plane, r.namespace)
	r.world.With(func() { r.world.Issues = true })
	replicas := max(f.replicas, 1)
	r.cluster = &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "orders"},
		Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "20Gi"},
	}
	if f.spec != nil {
		f.spec(&r.cluster.Spec)
	}
	r.start()
	if !f.creates {
		r.create()
		r.await(ready)
	}
	if f.prepare != nil {
		f.prepare(r)
	}
	if !f.creates || f.prepare != nil {
		r.quiet()
	}
	all, err := objects(t.Context(), r.namespace)
	if err != nil {
		t.Fatal(err)
	}
	before := identify(all)
	ended := f.ended
	if ended == nil {
		ended = ready
	}
	if end.write == 0 {
		r.stop()
	}
	if f.onWrite != nil {
		r.life.onWrite = func(number int) { f.onWrite(r, number) }
	}
	r.life.arm(end)
	f.act(r)
	got := result{crashed: end.write == 0}
	if !got.crashed {
		got.crashed = r.crashesBefore(ended)
		got.writes = r.life.written()
		if end == never {
			r.quiet()
		}
		r.stop()
	}
	if got.crashed && f.crashed != nil {
		f.crashed(r)
	}
	if end != never {
		r.start()
	}
	r.await(ended)
	if f.anyVolumes {
		want = ""
	}
	got.state = r.settles(before, want)
	r.stop()
	return got
}

func (l *life) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

func (r *run) create() {
	if err := plane.Client.Create(r.t.Context(), r.cluster); err != nil {
		r.t.Fatal(err)
	}
}

// edit changes the cluster as a user would with kubectl edit.
func (r *run) edit(change func(*v1alpha1.PostgresClusterSpec)) {
	r.change(r.cluster, func() { change(&r.cluster.Spec) })
}

func (r *run) change(object client.Object, change func()) {
	r.t.Helper()
	eventually(r.t, func(ctx context.Context) error {
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change()
		return plane.Client.Update(ctx, object, client.FieldOwner("kubectl-edit"))
	})
}

// crashesBefore waits until the operator has crashed, or until the flow has ended without that.
func (r *run) crashesBefore(ended func(context.Context, *run) error) bool {
	r.t.Helper()
	crashed := false
	eventually(r.t, func(ctx context.Context) error {
		select {
		case <-r.life.crashed:
			crashed = true
			return nil
		default:
		}
		if err := ended(ctx, r); err != nil {
			return err
		}
		if idle := r.life.idle(); idle < settled {
			return fmt.Errorf("the last write was %s ago", idle)
		}
		return nil
	})
	return crashed
}

func (r *run) await(ended func(context.Context, *run) error) {
	r.t.Helper()
	eventually(r.t, func(ctx context.Context) error { return ended(ctx, r) })
}

func (r *run) quiet() {
	r.t.Helper()
	eventually(r.t, func(context.Context) error {
		if idle := r.life.idle(); idle < settled {
			return fmt.Errorf("the last write was %s ago", idle)
		}
		return nil
	})
}

// eventually waits until condition returns nil, and asks seldom: many flows run side by side.
func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(150 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within the deadline: %v", err)
		case <-ticker.C:
		}
	}
}

// settles waits for the end of all writing and for the wanted state.
func (r *run) settles(before identities, want string) (got string) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	r.quiet()
	eventually(r.t, func(ctx context.Context) error {
		all, err := objects(ctx, r.namespace)
		if err != nil {
			return err
		}
		if got, err = state(r.namespace, all, before); err != nil {
			return err
		}
		if want != "" && got != want && time.Now().Before(deadline) {
			return errors.New("not the wanted state yet")
		}
		return nil
	})
	return got
}

// patience is how long a state may take that is not the wanted one.
const patience = 25 * time.Second

// ready is the end of a flow that leaves a running cluster.
func ready(ctx context.Context, r *run) error {
	return condition(ctx, r, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasReady)
}

func paused(ctx context.Context, r *run) error {
	return condition(ctx, r, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused)
}

func condition(ctx context.Context, r *run, kind string, status metav1.ConditionStatus, reason string) error {
	live := &v1alpha1.PostgresCluster{}
	if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(r.cluster), live); err != nil {
		return err
	}
	found := meta.FindStatusCondition(live.Status.Conditions, kind)
	if found == nil || found.Status != status || found.Reason != reason || found.ObservedGeneration != live.Generation {
		return fmt.Errorf("condition %s is %+v in generation %d", kind, found, live.Generation)
	}
	return nil
}

// gone is the end of a deletion: nothing is left but volumes that are kept.
func gone(ctx context.Context, r *run) error {
	if err := orphaned(ctx, r); err != nil {
		return err
	}
	all, err := objects(ctx, r.namespace)
	if err != nil {
		return err
	}
	for _, object := range all {
		if kindOf(object) != "PersistentVolumeClaim" || object.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%s %s is left", kindOf(object), object.GetName())
		}
	}
	return nil
}

// orphaned is the end of a deletion that leaves all children behind.
func orphaned(ctx context.Context, r *run) error {
	err := plane.Client.Get(ctx, client.ObjectKeyFromObject(r.cluster), &v1alpha1.PostgresCluster{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(err, errors.New("the cluster is still there"))
}
