package ssa_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/world"
)

var (
	truthSeed = flag.Uint64("truth.seed", 1, "seed of the changes during which the status must not lie")
	truthTime = flag.Duration("truth.time", 10*time.Second, "how long to change things")
)

const (
	// tellLate is how long an untrue Ready may stay: far more than a pass takes on a busy machine.
	tellLate = 5 * time.Second
	// tellStale is how old the facts may be on which Ready becomes True.
	tellStale = time.Second
)

// recorded is one version of one object, and when it was seen.
type recorded struct {
	revision uint64
	at       time.Time
	kind     watch.EventType
	object   client.Object
}

// recorder watches all kinds that the truth depends on. They are in one etcd, so their revisions have one order.
type recorder struct {
	mu   sync.Mutex
	seen []recorded
	stop func()
}

func record(t *testing.T, namespace string) *recorder {
	t.Helper()
	r := &recorder{}
	var watchers []watch.Interface
	var done sync.WaitGroup
	for _, list := range []client.ObjectList{
		&v1alpha1.PostgresClusterList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{},
	} {
		watcher, err := plane.Client.Watch(t.Context(), list, client.InNamespace(namespace))
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, watcher)
		done.Go(func() {
			for event := range watcher.ResultChan() {
				object, ok := event.Object.(client.Object)
				if !ok {
					continue
				}
				revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
				if err != nil {
					t.Errorf("a resourceVersion is no number: %v", err)
				}
				r.mu.Lock()
				r.seen = append(r.seen, recorded{revision, time.Now(), event.Type, object})
				r.mu.Unlock()
			}
		})
	}
	r.stop = sync.OnceFunc(func() {
		for _, watcher := range watchers {
			watcher.Stop()
		}
		done.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// lies replays the history by revision. Ready is a lie of generation g
//   - when it is stored before the facts were as g asks for the first time since g was stored (premature);
//   - when it becomes True although the facts have not been as asked for longer than tellStale (stale);
//   - when it stays True although the facts have not been as asked for longer than tellLate (late).
func (r *recorder) lies() (lies []string, truths int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.seen, func(a, b recorded) int { return cmp.Compare(a.revision, b.revision) })
	f := newFacts()
	var generation int64
	fulfilled, said := false, false
	var wrongSince time.Time
	for _, event := range r.seen {
		f.put(event.kind, event.object)
		if f.cluster == nil {
			continue
		}
		if f.cluster.Generation != generation {
			generation, fulfilled = f.cluster.Generation, false
		}
		wrong := f.departures()
		switch {
		case len(wrong) == 0:
			fulfilled, wrongSince = true, time.Time{}
		case wrongSince.IsZero():
			wrongSince = event.at
		}
		says := f.saysReady()
		lie := func(text string) {
			lies = append(lies, fmt.Sprintf("revision %d, generation %d: Ready %s: %s", event.revision, generation, text,
				strings.Join(wrong, ", ")))
		}
		contrary := event.at.Sub(wrongSince)
		switch {
		case !says:
		case !fulfilled:
			lie("is stored before the facts were so")
		case !said:
			truths++
			if len(wrong) > 0 && contrary > tellStale {
				lie(fmt.Sprintf("becomes True after %s of the contrary", contrary))
			}
		case len(wrong) > 0 && contrary > tellLate:
			lie(fmt.Sprintf("stays True for %s", contrary))
		}
		said = says
	}
	return lies, truths
}

// TestStatusNeverLies changes and breaks things at random, and afterwards reads the whole history.
func TestStatusNeverLies(t *testing.T) {
	namespace := plane.Namespace(t)
	w := world.Start(t, plane, namespace)
	startOperator(t, namespace)
	r := record(t, namespace)
	c := cluster(namespace, "orders", 2)
	create(t, c)
	awaitReady(t, c)
	random := rand.New(rand.NewPCG(*truthSeed, 0))
	t.Logf("replay with -truth.seed=%d", *truthSeed)
	storage := 20
	change := []func(){
		func() { edit(t, c, func() { c.Spec.Replicas = new(int32(1 + random.IntN(3))) }) },
		func() { edit(t, c, func() { c.Spec.Parameters = setting(random) }) },
		func() { edit(t, c, func() { c.Spec.Resources.Requests = memory(random) }) },
		func() { // There and back, so that what is stale looks right.
			edit(t, c, func() { c.Spec.Resources.Requests = memory(random) })
			edit(t, c, func() { c.Spec.Resources.Requests = memory(random) })
		},
		func() { storage++; edit(t, c, func() { c.Spec.Storage = fmt.Sprintf("%dGi", storage) }) },
		func() { edit(t, c, func() { c.Spec.Paused = !c.Spec.Paused; c.Spec.Parameters = setting(random) }) },
		func() { edit(t, c, func() { c.Spec.Paused = false }) },
		func() {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: anInstance(random)}}
			if err := client.IgnoreNotFound(plane.Client.Delete(t.Context(), pod)); err != nil {
				t.Error(err)
			}
		},
		func() { name := anInstance(random); w.With(func() { w.Broken[name] = !w.Broken[name] }) },
		func() { w.With(func() { clear(w.Broken) }) },
		func() {
			name := anInstance(random)
			w.With(func() { w.Reports[name] = func(r *contract.Report) { r.State = contract.StateNotStreaming } })
		},
		func() {
			name := anInstance(random)
			w.With(func() { w.Reports[name] = func(r *contract.Report) { r.SettingsHash = "older" } })
		},
		func() { w.With(func() { clear(w.Reports) }) },
	}
	end := time.After(*truthTime)
	for changing := true; changing; {
		change[random.IntN(len(change))]()
		select {
		case <-end:
			changing = false
		case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
		}
	}
	w.With(func() { clear(w.Broken); clear(w.Reports) })
	edit(t, c, func() { c.Spec.Paused = false })
	awaitReady(t, c)
	r.stop()
	lies, truths := r.lies()
	t.Logf("%d versions recorded; Ready became True %d times", len(r.seen), truths)
	if truths < 3 {
		t.Error("the cluster was not ready often enough for this to prove anything")
	}
	for _, lie := range lies {
		t.Error(lie)
	}
}

func anInstance(random *rand.Rand) string { return fmt.Sprintf("orders-%d", random.IntN(3)) }

func setting(random *rand.Rand) map[string]string {
	return map[string]string{"work_mem": fmt.Sprintf("%dMB", 4+random.IntN(2))}
}

func memory(random *rand.Rand) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(64+random.IntN(2))<<20, resource.BinarySI)}
}

// TestWaitingRightAfterAnEdit: what kubectl, Flux and Argo CD wait for is never what was true before the edit.
func TestWaitingRightAfterAnEdit(t *testing.T) {
	namespace := plane.Namespace(t)
	w := world.Start(t, plane, namespace)
	c := cluster(namespace, "orders", 1)
	create(t, c)
	wait := func(what, timeout string) bool {
		t.Helper()
		return plane.TryKubectl(t, "", "wait", "pgc/orders", "-n", namespace, "--for="+what, "--timeout="+timeout).Code == 0
	}
	judged := func(want kstatus.Status) {
		t.Helper()
		live, err := get(t.Context(), namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err != nil {
			t.Fatal(err)
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		if err != nil {
			t.Fatal(err)
		}
		result, err := kstatus.Compute(&unstructured.Unstructured{Object: object})
		if err != nil || result.Status != want {
			t.Errorf("kstatus says %v, want %s: %v", result, want, err)
		}
	}
	const ready = "condition=Ready"
	judged(kstatus.InProgressStatus) // Nobody has seen it yet.
	o := startOperator(t, namespace)
	if !wait(ready, "30s") {
		t.Fatal("it does not become ready")
	}
	judged(kstatus.CurrentStatus)
	for i := range 3 {
		plane.Kubectl(t, "patch", "pgc/orders", "-n", namespace, "--type=merge", "-p", fmt.Sprintf(
			`{"spec":{"replicas":%d,"parameters":{"work_mem":"%dMB"}}}`, 1+(i+1)%3, 4+i))
		if !wait(ready, "30s") {
			t.Fatal("it does not become ready")
		}
		if wrong := liveFacts(t, c).departures(); len(wrong) > 0 {
			t.Errorf("kubectl wait returned although %v", wrong)
		}
	}
	plane.Kubectl(t, "scale", "pgc/orders", "-n", namespace, "--replicas=3")
	if !wait("jsonpath={.status.readyReplicas}=3", "30s") || len(liveFacts(t, c).pods) != 3 {
		t.Error("kubectl wait for the number of ready instances")
	}
	if !wait(ready, "30s") {
		t.Fatal("it does not become ready")
	}
	// Nothing sees the next edit.
	o.stop()
	w.With(func() { w.Frozen = true })
	plane.Kubectl(t, "scale", "pgc/orders", "-n", namespace, "--replicas=2")
	if wait(ready, "1s") {
		t.Error("kubectl wait takes the status of the generation before")
	}
	judged(kstatus.InProgressStatus)
	// The operator sees it, and the world stands still.
	startOperator(t, namespace)
	awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonScaling)
	if wait(ready, "1s") {
		t.Error("Ready while an instance too many is there")
	}
	judged(kstatus.InProgressStatus)
	w.With(func() { w.Frozen = false })
	if !wait(ready, "30s") {
		t.Error("it does not become ready")
	}
	judged(kstatus.CurrentStatus)
}
