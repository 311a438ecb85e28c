// Package world plays what a bare API server lacks, for tests of the operator:
// the StatefulSet's controller, the garbage collector's orphans, the volumes,
// the counting of quotas, the kubelet, and the agents.
package world

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/quota"
	"github.com/acme/pg-operator/test/controlplane"
)

// World is one namespace's. It turns when something in it was changed, and once in a second.
type World struct {
	namespace string
	client    client.WithWatch

	woken atomic.Bool
	mu    sync.Mutex
	turns int
	// Reports change what an instance's agent says; nil leaves it.
	Reports map[string]func(*contract.Report)
	// Primary is the first instance until it hands over, by the name of its cluster; Stubborn primaries do not.
	Primary  map[string]Leader
	Stubborn bool
	// Broken instances are never ready.
	Broken map[string]bool
	// SystemID of all data.
	SystemID string
	// Frozen stops the world.
	Frozen bool
	// Collects lets the world play the garbage collector as a whole, not for orphaned pods alone.
	Collects bool
	// Issues lets the world play cert-manager where there is none: certificates become ready; nothing is issued.
	Issues bool
}

// Start runs a world until the test ends.
func Start(t testing.TB, plane *controlplane.ControlPlane, namespace string) *World {
	t.Helper()
	w := &World{
		namespace: namespace, SystemID: "7300000000000000001",
		Reports: map[string]func(*contract.Report){}, Broken: map[string]bool{}, Primary: map[string]Leader{},
	}
	config := rest.CopyConfig(plane.Config)
	config.QPS = -1
	config.Wrap(w.Waking)
	var err error
	if w.client, err = client.NewWithWatch(config, client.Options{Scheme: plane.Scheme}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.watch(ctx, t, &running)
	running.Go(func() {
		ticker := time.NewTicker(40 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				w.turn(ctx)
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

// watch wakes the world on every change of what it turns: listing all of that all the time would keep a core busy.
func (w *World) watch(ctx context.Context, t testing.TB, running *sync.WaitGroup) {
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{},
		&corev1.ResourceQuotaList{},
	} {
		watcher, err := w.client.Watch(ctx, list, client.InNamespace(w.namespace))
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for range watcher.ResultChan() {
				w.woken.Store(true)
			}
		})
	}
}

// With changes the world between two turns.
func (w *World) With(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.woken.Store(true)
}

// Waking is a connection whose writes wake the world, whatever they change.
func (w *World) Waking(inner http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := inner.RoundTrip(request)
		if request.Method != http.MethodGet {
			w.woken.Store(true)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// turn does what is due. Errors are of races with the operator; the next turn sees to them.
func (w *World) turn(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns++
	if w.Frozen || (!w.woken.Swap(false) && w.turns%25 != 0) {
		return
	}
	sets := &appsv1.StatefulSetList{}
	if w.client.List(ctx, sets, client.InNamespace(w.namespace)) != nil {
		return
	}
	w.volumes(ctx)
	pods := w.pods(ctx)
	w.quotas(ctx, pods)
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.DeletionTimestamp != nil {
			w.orphan(ctx, set, pods)
			continue
		}
		w.statefulSet(ctx, set, pods)
	}
	if w.Issues {
		w.certificates(ctx)
	}
	if w.Collects {
		w.garbage(ctx)
	}
}

func (w *World) volumes(ctx context.Context) {
	claims := &corev1.PersistentVolumeClaimList{}
	if w.client.List(ctx, claims, client.InNamespace(w.namespace)) != nil {
		return
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		capacity := corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
		if claim.Spec.VolumeName == "" {
			claim.Spec.VolumeName = "pv-" + string(claim.UID)
			if w.client.Update(ctx, claim, client.FieldOwner("kube-controller-manager")) != nil {
				continue
			}
		}
		have := claim.Status.Capacity[corev1.ResourceStorage]
		want := capacity[corev1.ResourceStorage]
		if claim.Status.Phase == corev1.ClaimBound && have.Cmp(want) == 0 {
			continue
		}
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, capacity
		_ = w.client.Status().Update(ctx, claim)
	}
}

// quotas counts what pods and volume claims take of quotas.
func (w *World) quotas(ctx context.Context, pods []corev1.Pod) {
	quotas := &corev1.ResourceQuotaList{}
	if w.client.List(ctx, quotas, client.InNamespace(w.namespace)) != nil || len(quotas.Items) == 0 {
		return
	}
	claims := &corev1.PersistentVolumeClaimList{}
	if w.client.List(ctx, claims, client.InNamespace(w.namespace)) != nil {
		return
	}
	for i := range quotas.Items {
		q := &quotas.Items[i]
		total := corev1.ResourceList{}
		for j := range pods {
			if pods[j].Namespace == q.Namespace {
				quota.Add(total, quota.Pod(&pods[j]))
			}
		}
		for j := range claims.Items {
			if claim := &claims.Items[j]; claim.Namespace == q.Namespace {
				quota.Add(total, quota.Claim(*claim.Spec.StorageClassName, claim.Spec.Resources.Requests[corev1.ResourceStorage]))
			}
		}
		status := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{}}
		for name := range q.Spec.Hard {
			status.Used[name] = total[name]
		}
		if !equality.Semantic.DeepEqual(q.Status, status) {
			q.Status = status
			_ = w.client.Status().Update(ctx, q)
		}
	}
}

// orphan takes a StatefulSet's pods out of its hands, as the garbage collector does before it lets it go.
func (w *World) orphan(ctx context.Context, set *appsv1.StatefulSet, pods []corev1.Pod) {
	for _, pod := range pods {
		if !metav1.IsControlledBy(&pod, set) {
			continue
		}
		pod.OwnerReferences = nil
		if w.client.Update(ctx, &pod) != nil {
			return
		}
	}
	set.Finalizers = nil
	_ = w.client.Update(ctx, set)
}

func (w *World) pods(ctx context.Context) []corev1.Pod {
	list := &corev1.PodList{}
	_ = w.client.List(ctx, list, client.InNamespace(w.namespace))
	return list.Items
}

func (w *World) statefulSet(ctx context.Context, set *appsv1.StatefulSet, pods []corev1.Pod) {
	names := naming.Cluster(set.Name)
	ready := int32(0)
	for ordinal := range *set.Spec.Replicas {
		name := names.Instance(ordinal)
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == name })
		if i < 0 {
			w.createPod(ctx, set, name)
			continue
		}
		pod := &pods[i]
		if metav1.GetControllerOf(pod) == nil {
			pod.OwnerReferences = []metav1.OwnerReference{setRef(set)}
			_ = w.client.Update(ctx, pod)
			continue
		}
		if pod.DeletionTimestamp == nil && w.kubelet(ctx, set, pod) {
			ready++
		}
	}
	for i := range pods {
		others := metav1.GetControllerOf(&pods[i]) != nil && !metav1.IsControlledBy(&pods[i], set)
		if ordinal, ok := names.Ordinal(pods[i].Name); ok && ordinal >= *set.Spec.Replicas && !others {
			_ = w.client.Delete(ctx, &pods[i])
		}
	}
	status := set.Status.DeepCopy()
	status.ObservedGeneration, status.Replicas, status.ReadyReplicas = set.Generation, *set.Spec.Replicas, ready
	if status.ObservedGeneration != set.Status.ObservedGeneration ||
		status.ReadyReplicas != set.Status.ReadyReplicas || status.Replicas != set.Status.Replicas {
		set.Status = *status
		_ = w.client.Status().Update(ctx, set)
	}
}

func setRef(set *appsv1.StatefulSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
}

func (w *World) createPod(ctx context.Context, set *appsv1.StatefulSet, name string) {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: set.Namespace, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{setRef(set)},
		},
		Spec: template.Spec,
	}
	pod.Spec.Hostname, pod.Spec.Subdomain = name, set.Spec.ServiceName
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: naming.VolumeData, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: naming.VolumeData + "-" + name},
	}})
	account := &corev1.ServiceAccount{}
	if w.client.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: template.Spec.ServiceAccountName}, account) == nil {
		_ = w.client.Create(ctx, pod)
	}
}

// kubelet runs a pod and its agent, and says whether it is ready.
func (w *World) kubelet(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	w.report(ctx, set, pod)
	if pod.Annotations[naming.AnnotationReport] == "" {
		return false
	}
	want := corev1.ConditionTrue
	if w.Broken[pod.Name] {
		want = corev1.ConditionFalse
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == want {
			return want == corev1.ConditionTrue
		}
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: want}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: naming.ContainerPostgres, Image: "x", ImageID: "x", Ready: want == corev1.ConditionTrue,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	return w.client.Status().Update(ctx, pod) == nil && want == corev1.ConditionTrue
}

// Leader is a cluster's primary and its term.
type Leader struct {
	Instance string
	Term     int32
}

// leads is a cluster's primary, after it did as it was ordered.
func (w *World) leads(config contract.Config) Leader {
	leader, known := w.Primary[config.Cluster]
	if !known {
		leader = Leader{Instance: naming.Cluster(config.Cluster).Instance(0), Term: 1}
	}
	for _, order := range config.Orders {
		if order.Kind == contract.OrderSwitchover && order.Instance == leader.Instance && order.Term == leader.Term && !w.Stubborn {
			leader = Leader{Instance: order.Target, Term: order.Term + 1}
		}
	}
	w.Primary[config.Cluster] = leader
	return leader
}

// report is what an agent says of itself.
func (w *World) report(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) {
	config, err := w.config(ctx, set)
	if err != nil {
		return
	}
	leader := w.leads(config)
	report := contract.Report{
		Incarnation: string(pod.UID), Role: contract.RoleReplica, State: contract.StateRunning, Term: leader.Term,
		SystemID: w.SystemID, Timeline: 1, DataVersion: config.Version, SettingsHash: config.SettingsHash,
	}
	if pod.Name == leader.Instance {
		report.Role = contract.RolePrimary
	}
	if change := w.Reports[pod.Name]; change != nil {
		change(&report)
	}
	data, err := json.Marshal(report)
	if err != nil || pod.Annotations[naming.AnnotationReport] == string(data) {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{naming.AnnotationReport: string(data)},
		"labels":      map[string]string{naming.LabelRole: map[bool]string{true: naming.RolePrimary, false: naming.RoleReplica}[report.Role == contract.RolePrimary]},
	}})
	if err != nil {
		return
	}
	_ = w.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(naming.FieldManagerInstance))
}

func (w *World) config(ctx context.Context, set *appsv1.StatefulSet) (contract.Config, error) {
	config := contract.Config{}
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: set.Namespace, Name: naming.Cluster(set.Name).ConfigMap()}
	if err := w.client.Get(ctx, key, object); err != nil {
		return config, err
	}
	return config, json.Unmarshal([]byte(object.Data[naming.ConfigMapKey]), &config)
}
