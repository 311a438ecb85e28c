package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/test/controlplane"
)

// installPolicies puts config/policy in force until the test ends.
func installPolicies(t *testing.T) {
	t.Helper()
	probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "probe-rw", Namespace: plane.Namespace(t), Labels: naming.Cluster("probe").Labels(),
	}}
	probe.Spec.Ports = []corev1.ServicePort{{Port: 1}}
	if err := plane.Client.Create(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
	forge := func(labels map[string]string) func(context.Context) error {
		return func(ctx context.Context) error {
			return plane.Client.Create(ctx, endpointSlice(probe.Namespace, "forged", labels, "10.9.9.9"), client.DryRunAll)
		}
	}
	plane.InstallPolicies(t, forge(map[string]string{discoveryv1.LabelServiceName: probe.Name}),
		forge(map[string]string{discoveryv1.LabelServiceName: probe.Name, naming.LabelCluster: "probe"}))
}

func endpointSlice(namespace, name string, labels map[string]string, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
	}
	if len(addresses) > 0 {
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: addresses}}
	}
	return slice
}

// bound is a connection with a token as the kubelet gives it to a pod.
func bound(t *testing.T, namespace, account string, pod *corev1.Pod) *rest.Config {
	t.Helper()
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: namespace}}
	if err := plane.Client.SubResource("token").Create(t.Context(), object, token); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(plane.Config)
	config.BearerToken = token.Status.Token
	return config
}

// agent is an instance's agent as it runs in its pod, which says that it has an address.
func (f *fixture) agent(t *testing.T, ordinal int32, address string) *kube.Client {
	t.Helper()
	pod := f.pods[cluster.Instance(ordinal)]
	c, err := kube.New(bound(t, f.namespace, cluster.ServiceAccount(), pod), cluster,
		kube.Pod{Name: pod.Name, Namespace: f.namespace, UID: pod.UID, IP: address})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// address has the kubelet say that a pod has addresses.
func (f *fixture) address(t *testing.T, ordinal int32, addresses ...string) {
	t.Helper()
	pod := f.pods[cluster.Instance(ordinal)]
	ips := []corev1.PodIP{}
	for _, address := range addresses {
		ips = append(ips, corev1.PodIP{IP: address})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"podIP": addresses[0], "podIPs": ips}})
	if err == nil {
		err = plane.Client.Status().Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPolicy has the -rw EndpointSlice written by everybody who can, in all the ways that would lead clients astray.
func TestPolicy(t *testing.T) {
	installPolicies(t)
	f := newFixture(t)
	f.address(t, 0, "10.0.0.1", "fd00::1")
	f.address(t, 1, "10.0.0.2")
	refused := func(what string, err error, says string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want that %q", what, err, says)
		}
	}
	allowed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	first, second := f.agent(t, 0, "10.0.0.1"), f.agent(t, 1, "10.0.0.2")
	allowed("the first primary", first.Serve(t.Context(), 5432, true, 3))
	allowed("the same again", first.Serve(t.Context(), 5432, true, 3))
	allowed("the next primary", second.Serve(t.Context(), 5432, true, 12))
	refused("the first in its term", first.Serve(t.Context(), 5432, true, 3), "was led in term 12 of the Lease already, and this is term 3")
	refused("its leave", first.Serve(t.Context(), 5432, false, 11), "this is term 11")
	allowed("the first in a later term", first.Serve(t.Context(), 5432, true, 13))
	allowed("its leave in its term", first.Serve(t.Context(), 5432, false, 13))

	// An agent that was broken into.
	controlplane.Eventually(t, func(ctx context.Context) error { // The cache that the policy asks knows the addresses soon.
		if err := f.agent(t, 0, "192.0.2.1").Serve(ctx, 5432, true, 13); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another address: %w", err)
		}
		return nil
	})
	refused("another address", f.agent(t, 0, "192.0.2.1").Serve(t.Context(), 5432, true, 13), "not those of Pod orders-db-0")
	refused("another instance's address", f.agent(t, 0, "10.0.0.2").Serve(t.Context(), 5432, true, 13), "not those of Pod orders-db-0")
	slice := f.slice(t)
	raw := f.writer(t, bound(t, f.namespace, cluster.ServiceAccount(), f.pods["orders-db-0"]))
	change := func(c client.Client, change func(*discoveryv1.EndpointSlice)) error {
		before := f.slice(t)
		after := before.DeepCopy()
		change(after)
		return c.Patch(t.Context(), after, client.MergeFrom(before))
	}
	refused("another pod", change(raw, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].TargetRef.Name, s.Endpoints[0].TargetRef.UID = "orders-db-1", f.pods["orders-db-1"].UID
		s.Endpoints[0].Addresses = []string{"10.0.0.2"}
	}), "only to its own pod")
	refused("no pod", change(raw, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = nil }), "only to its own pod")
	refused("one more", change(raw, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}})
	}), "only to its own pod")
	refused("no term", change(raw, func(s *discoveryv1.EndpointSlice) {
		delete(s.Annotations, naming.AnnotationTerm)
	}), "this is term (none)")
	refused("no number", change(raw, func(s *discoveryv1.EndpointSlice) { s.Annotations[naming.AnnotationTerm] = "x" }), "this is term x")
	refused("another cluster's", change(raw, func(s *discoveryv1.EndpointSlice) { s.Labels[naming.LabelCluster] = "other" }), "do not change")

	// A token of the account that is bound to no instance, another cluster's agent, and people with rights to edit.
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: f.namespace}, Spec: f.pods["orders-db-0"].Spec}
	allowed("a pod", plane.Client.Create(t.Context(), stranger))
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: f.namespace}}
	allowed("an account", plane.Client.Create(t.Context(), other))
	agentOfOther := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other-0", Namespace: f.namespace}, Spec: stranger.Spec}
	agentOfOther.Spec.ServiceAccountName = "other"
	allowed("a pod", plane.Client.Create(t.Context(), agentOfOther))
	for name, config := range map[string]*rest.Config{
		"a pod that is no instance": bound(t, f.namespace, cluster.ServiceAccount(), stranger),
		"another cluster's agent":   bound(t, f.namespace, "other", agentOfOther),
		"a user":                    impersonating("jane"),
		"the administrator":         plane.Config,
		"the account without a pod": impersonating("system:serviceaccount:" + f.namespace + ":" + cluster.ServiceAccount()),
		"the operator, broken into": impersonating("system:serviceaccount:operators:pg-operator"),
		"Kubernetes, out of bounds": impersonating("system:serviceaccount:kube-system:endpointslice-controller"),
	} {
		c := f.writer(t, config)
		const says = "only the agents of PostgresCluster orders-db do"
		refused(name+", an address", change(c, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"192.0.2.1"} }), "")
		refused(name+", another node", change(c, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = new("node-b") }), says)
		refused(name+", nothing", change(c, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }), says)
		refused(name+", a port", change(c, func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(5433)) }), says)
		refused(name+", a later term", change(c, func(s *discoveryv1.EndpointSlice) { s.Annotations[naming.AnnotationTerm] = "99" }), says)
		refused(name+", a label", change(c, func(s *discoveryv1.EndpointSlice) { delete(s.Labels, naming.LabelCluster) }), "do not change")
		allowed(name+", a note", change(c, func(s *discoveryv1.EndpointSlice) { s.Annotations["example.com/note"] = name }))
		labels := map[string]string{discoveryv1.LabelServiceName: cluster.ServiceReadWrite()}
		allowed(name+", a slice that is none of ours", c.Create(t.Context(),
			endpointSlice(f.namespace, "free", map[string]string{discoveryv1.LabelServiceName: "x-rw"}, "192.0.2.1"), client.DryRunAll))
		allowed(name+", an empty one beside ours", c.Create(t.Context(), endpointSlice(f.namespace, "beside", labels), client.DryRunAll))
		refused(name+", a full one in ours", c.Create(t.Context(), endpointSlice(f.namespace, "beside", slice.Labels, "192.0.2.1"),
			client.DryRunAll), says)
	}
	if now := f.slice(t); now.Endpoints[0].Addresses[0] != "10.0.0.1" || now.Annotations[naming.AnnotationTerm] != "13" {
		t.Errorf("it leads to %v in term %s", now.Endpoints, now.Annotations[naming.AnnotationTerm])
	}
	f.stolen(t)
}

func impersonating(user string) *rest.Config {
	config := rest.CopyConfig(plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
	return config
}

func (f *fixture) slice(t *testing.T) *discoveryv1.EndpointSlice {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{}
	f.get(t, cluster.EndpointSlice(), slice)
	return slice
}

// writer may write EndpointSlices, whoever it is.
func (f *fixture) writer(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: plane.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "writer", Namespace: f.namespace}
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"create", "patch", "delete", "get"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"}},
		},
	} {
		if err := plane.Client.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestPolicyOfTheWholeLife: the operator makes the slice and takes it away, and so do those who clean up.
func TestPolicyOfTheWholeLife(t *testing.T) {
	installPolicies(t)
	f := newFixture(t)
	f.address(t, 0, "10.0.0.1")
	allowed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	allowed("lead", f.agent(t, 0, "10.0.0.1").Serve(t.Context(), 5432, true, 40))
	old := f.slice(t)
	collector := f.writer(t, impersonating("system:serviceaccount:kube-system:generic-garbage-collector"))
	orphan := old.DeepCopy()
	orphan.OwnerReferences = nil
	orphan.Finalizers = []string{"example.com/x"}
	allowed("the collector's patch", collector.Patch(t.Context(), orphan, client.MergeFrom(old)))
	orphan.Finalizers = nil
	allowed("the collector's other patch", collector.Patch(t.Context(), orphan, client.MergeFrom(f.slice(t))))
	allowed("the deletion", collector.Delete(t.Context(), f.slice(t)))
	made := endpointSlice(f.namespace, cluster.EndpointSlice(), old.Labels)
	allowed("the operator's", f.writer(t, impersonating("system:serviceaccount:operators:pg-operator")).Create(t.Context(), made))
	// A Lease that was made anew counts its terms anew, if nobody knows the last one: deleting the slice is the way out.
	allowed("a lower term in a new slice", f.agent(t, 0, "10.0.0.1").Serve(t.Context(), 5432, true, 1))
}

// TestPolicyDelaysNoPromotion: however late the API server's own cache is, no agent is refused its own pod. Each round has a
// new pod, whose agent leads the Service to it right after the kubelet has told its address, and before.
func TestPolicyDelaysNoPromotion(t *testing.T) {
	installPolicies(t)
	f := newFixture(t)
	var slowest time.Duration
	for round := range int32(30) {
		pod := f.pods["orders-db-0"]
		if round > 0 {
			if err := plane.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels}, Spec: pod.Spec}
			if err := plane.Client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			f.pods[pod.Name] = pod
		}
		address := "10.0.1." + strconv.Itoa(int(round))
		agent := f.agent(t, 0, address)
		told := round%2 == 0
		if told {
			f.address(t, 0, address)
		}
		begun := time.Now()
		if err := agent.Serve(t.Context(), 5432, true, round+1); err != nil {
			t.Errorf("round %d, address told %t: %v", round, told, err)
		}
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("the slowest of 30 took %s", slowest.Round(time.Millisecond))

	// A pod whose sandbox is made anew has another address: until the API server's cache knows it, the agent has to try again.
	slowest = 0
	for round := range int32(20) {
		address := "10.0.2." + strconv.Itoa(int(round))
		agent := f.agent(t, 0, address)
		f.address(t, 0, address)
		begun := time.Now()
		controlplane.Eventually(t, func(ctx context.Context) error { return agent.Serve(ctx, 5432, true, 100) })
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("with another address, the slowest of 20 took %s", slowest.Round(time.Millisecond))
}
