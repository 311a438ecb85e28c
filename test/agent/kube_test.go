package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/lease"
)

const cluster = naming.Cluster("orders-db")

// fixture is a cluster's objects as the reconciler makes them, and its agents' clients with no more than their rights.
type fixture struct {
	namespace string
	pods      map[string]*corev1.Pod
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{namespace: plane.Namespace(t), pods: map[string]*corev1.Pod{}}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: f.namespace} }
	rule := func(group, resource, name string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: verbs}
	}
	pods := rule("", "pods", cluster.Instance(0), "get", "patch")
	pods.ResourceNames = append(pods.ResourceNames, cluster.Instance(1))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta(cluster.EndpointSlice()), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = cluster.Labels()
	slice.Labels[discoveryv1.LabelServiceName] = cluster.ServiceReadWrite()
	objects := []client.Object{
		&coordinationv1.Lease{ObjectMeta: meta(cluster.Lease())},
		slice,
		&corev1.ServiceAccount{ObjectMeta: meta(cluster.ServiceAccount())},
		&rbacv1.Role{ObjectMeta: meta(cluster.Role()), Rules: []rbacv1.PolicyRule{
			rule("coordination.k8s.io", "leases", cluster.Lease(), "get", "patch"),
			rule("discovery.k8s.io", "endpointslices", cluster.EndpointSlice(), "get", "patch"),
			rule("", "configmaps", cluster.ConfigMap(), "get", "list", "watch"),
			pods,
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta(cluster.RoleBinding()),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: cluster.Role()},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: cluster.ServiceAccount(), Namespace: f.namespace}},
		},
	}
	for ordinal := range int32(2) {
		pod := &corev1.Pod{ObjectMeta: meta(cluster.Instance(ordinal))}
		pod.Labels = cluster.Labels()
		pod.Spec = corev1.PodSpec{
			NodeName: "node-a", ServiceAccountName: cluster.ServiceAccount(),
			Containers: []corev1.Container{{Name: naming.ContainerPostgres, Image: "postgres"}},
		}
		f.pods[pod.Name] = pod
		objects = append(objects, pod)
	}
	for _, object := range objects {
		if err := plane.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// client is that of an instance's agent.
func (f *fixture) client(t *testing.T, ordinal int32) *kube.Client {
	t.Helper()
	config := rest.CopyConfig(plane.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + f.namespace + ":" + cluster.ServiceAccount(),
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	pod := f.pods[cluster.Instance(ordinal)]
	c, err := kube.New(config, cluster, kube.Pod{Name: pod.Name, Namespace: f.namespace, UID: pod.UID, IP: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) get(t *testing.T, name string, object client.Object) {
	t.Helper()
	if err := plane.Client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
}

func TestLease(t *testing.T) {
	f := newFixture(t)
	a, b := f.client(t, 0), f.client(t, 1)
	empty, err := a.Lease(t.Context())
	if err != nil || empty.Holder != "" || empty.Term != 0 {
		t.Fatalf("an empty Lease is %+v, %v", empty, err)
	}
	if _, err = b.Lease(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken := empty.Taken(lease.Identity("orders-db-0", "x"))
	taken.SystemID, taken.Timeline, taken.WALLSN, taken.Members = "7", 2, 0x16B374D848, []string{"orders-db-0", "orders-db-1"}
	written, err := a.UpdateLease(t.Context(), taken, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// The other one read the Lease before it was taken.
	if _, err = b.UpdateLease(t.Context(), empty.Taken(lease.Identity("orders-db-1", "y")), 10*time.Second); !errors.Is(err, kube.ErrConflict) {
		t.Fatalf("took a Lease that was taken: %v", err)
	}
	read, err := b.Lease(t.Context())
	if err != nil || read.Version != written.Version {
		t.Fatalf("read %+v, %v; written was %+v", read, err, written)
	}
	taken.Version = read.Version
	if read.Holder != taken.Holder || read.Term != 1 || read.SystemID != "7" || read.Timeline != 2 || read.WALLSN != taken.WALLSN ||
		!slices.Equal(read.Members, taken.Members) || read.Released != 0 {
		t.Errorf("read %+v, want %+v", read, taken)
	}
	released := written
	released.Released = 0x10
	if _, err := a.UpdateLease(t.Context(), released, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	var object coordinationv1.Lease
	f.get(t, cluster.Lease(), &object)
	if object.Annotations[naming.AnnotationLeaseReleased] != "0/10" || *object.Spec.LeaseDurationSeconds != 10 || object.Spec.RenewTime == nil {
		t.Errorf("object %+v", object)
	}
}

func TestServe(t *testing.T) {
	f := newFixture(t)
	a, b := f.client(t, 0), f.client(t, 1)
	if primary, err := b.Primary(t.Context()); err != nil || primary != (agent.Endpoint{}) {
		t.Fatalf("before there is a primary: %+v, %v", primary, err)
	}
	if err := a.Serve(t.Context(), 5432, true, 7); err != nil {
		t.Fatal(err)
	}
	want := agent.Endpoint{Instance: "orders-db-0", Address: "10.0.0.1", Port: 5432}
	if primary, err := b.Primary(t.Context()); err != nil || primary != want {
		t.Fatalf("got %+v, %v, want %+v", primary, err, want)
	}
	var slice discoveryv1.EndpointSlice
	f.get(t, cluster.EndpointSlice(), &slice)
	if slice.Labels[discoveryv1.LabelServiceName] != cluster.ServiceReadWrite() || slice.AddressType != discoveryv1.AddressTypeIPv4 ||
		*slice.Endpoints[0].NodeName != "node-a" || slice.Endpoints[0].TargetRef.UID != f.pods["orders-db-0"].UID ||
		*slice.Ports[0].Name != naming.PortPostgresName || slice.Annotations[naming.AnnotationTerm] != "7" {
		t.Errorf("slice %+v", slice)
	}
	// The next primary replaces the whole list, in one write.
	if err := b.Serve(t.Context(), 5432, true, 8); err != nil {
		t.Fatal(err)
	}
	f.get(t, cluster.EndpointSlice(), &slice)
	if len(slice.Endpoints) != 1 || slice.Endpoints[0].TargetRef.Name != "orders-db-1" {
		t.Errorf("endpoints %+v", slice.Endpoints)
	}
	if err := b.Serve(t.Context(), 5432, false, 7); err != nil {
		t.Fatal(err)
	}
	if primary, err := a.Primary(t.Context()); err != nil || primary != (agent.Endpoint{}) {
		t.Errorf("after it left: %+v, %v", primary, err)
	}
}

func TestPublish(t *testing.T) {
	f := newFixture(t)
	a := f.client(t, 0)
	var pod corev1.Pod
	for _, step := range []struct{ report, role string }{{`{"a":1}`, naming.RolePrimary}, {`{"a":2}`, ""}, {`{"a":3}`, naming.RoleReplica}} {
		if err := a.Publish(t.Context(), step.report, step.role); err != nil {
			t.Fatal(err)
		}
		f.get(t, "orders-db-0", &pod)
		if pod.Annotations[naming.AnnotationReport] != step.report || pod.Labels[naming.LabelRole] != step.role {
			t.Errorf("annotations %v, labels %v", pod.Annotations, pod.Labels)
		}
	}
	before := pod.ResourceVersion
	if err := a.Publish(t.Context(), `{"a":3}`, naming.RoleReplica); err != nil {
		t.Fatal(err)
	}
	f.get(t, "orders-db-0", &pod)
	if pod.ResourceVersion != before {
		t.Error("the same report was written again")
	}
	for _, entry := range pod.ManagedFields {
		if entry.Manager == naming.FieldManagerInstance && entry.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("written by %s, not applied", entry.Operation)
		}
	}
}

// TestUnlabel has a new primary take the label of the former one off, but never that of a later one.
func TestUnlabel(t *testing.T) {
	f := newFixture(t)
	a, b := f.client(t, 0), f.client(t, 1)
	if err := b.Unlabel(t.Context(), "orders-db-0", 4); err != nil {
		t.Fatalf("a pod without a label: %v", err)
	}
	if err := b.Unlabel(t.Context(), "orders-db-2", 4); err == nil {
		t.Error("a pod that is no instance's was looked at")
	}
	if err := a.Publish(t.Context(), `{"role":"Primary","state":"Running","term":4}`, naming.RolePrimary); err != nil {
		t.Fatal(err)
	}
	for term, want := range map[int32]string{4: naming.RolePrimary, 3: naming.RolePrimary} {
		if err := b.Unlabel(t.Context(), "orders-db-0", term); err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if f.get(t, "orders-db-0", &pod); pod.Labels[naming.LabelRole] != want {
			t.Errorf("after term %d: labels %v", term, pod.Labels)
		}
	}
	if err := b.Unlabel(t.Context(), "orders-db-0", 5); err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	f.get(t, "orders-db-0", &pod)
	if _, labelled := pod.Labels[naming.LabelRole]; labelled || pod.Annotations[naming.AnnotationReport] == "" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	// The former primary comes back.
	if err := a.Publish(t.Context(), `{"role":"Replica","state":"Running","term":5}`, naming.RoleReplica); err != nil {
		t.Fatal(err)
	}
	if f.get(t, "orders-db-0", &pod); pod.Labels[naming.LabelRole] != naming.RoleReplica {
		t.Errorf("labels %v", pod.Labels)
	}
}

// TestPublishToAnother proves that an agent that outlives its pod does not write onto the pod that replaced it.
func TestPublishToAnother(t *testing.T) {
	f := newFixture(t)
	a := f.client(t, 0)
	old := f.pods["orders-db-0"]
	if err := plane.Client.Delete(t.Context(), old, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := a.Publish(t.Context(), "{}", naming.RolePrimary); err == nil {
		t.Error("published onto a pod that is gone")
	}
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Namespace: f.namespace}, Spec: old.Spec}
	if err := plane.Client.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := a.Publish(t.Context(), "{}", naming.RolePrimary); err == nil {
		t.Error("published onto the pod that replaced its own")
	}
	if err := a.Serve(t.Context(), 5432, true, 7); !errors.Is(err, kube.ErrReplaced) {
		t.Errorf("led the Service to a pod that is gone: %v", err)
	}
}

func TestWatchConfig(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.client(t, 0).WatchConfig(ctx, func(text string) { seen <- text })
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("saw %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("did not see %q", want)
		}
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: cluster.ConfigMap(), Namespace: f.namespace}}
	other := config.DeepCopy()
	other.Name, other.Data = "other", map[string]string{naming.ConfigMapKey: "not ours"}
	if err := plane.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	config.Data = map[string]string{naming.ConfigMapKey: "one"}
	if err := plane.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	expect("one")
	config.Data[naming.ConfigMapKey] = "two"
	if err := plane.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	expect("two")
	cancel()
	<-ended
}
