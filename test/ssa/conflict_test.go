package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

// converged is a Ready cluster named orders with a world and an operator.
func converged(t testing.TB, replicas int32) (*v1alpha1.PostgresCluster, *world.World, *running) {
	t.Helper()
	c := cluster(plane.Namespace(t), "orders", replicas)
	w, o := convergedAs(t, c)
	return c, w, o
}

// convergedAs creates a cluster of a namespace of its own and waits until it is ready.
func convergedAs(t testing.TB, c *v1alpha1.PostgresCluster) (*world.World, *running) {
	t.Helper()
	w := world.Start(t, plane, c.Namespace)
	o := startOperator(t, c.Namespace)
	create(t, c)
	awaitReady(t, c)
	return w, o
}

// logged are the lines of an operator's log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{})
}

// with are the lines that have all of some words.
func (l *logged) with(words ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

// takenBack is the metric of the fields of StatefulSets that were taken back.
func takenBack(t testing.TB) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "pg_operator_fields_taken_back_total" && metric.GetLabel()[0].GetValue() == "StatefulSet" {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestEditsOfOurFieldsAreTakenBack(t *testing.T) {
	c := cluster(plane.Namespace(t), "orders", 1)
	world.Start(t, plane, c.Namespace)
	log := &logged{}
	startOperatorWith(t, c.Namespace, func(_ *rest.Config, options *ctrl.Options) { options.Logger = log.logger() })
	create(t, c)
	awaitReady(t, c)
	counted := takenBack(t)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	edit(t, set, func() {
		set.Spec.Template.Spec.Containers[0].Image = "evil:1"
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, "example.com/note", "mine")
	})
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &appsv1.StatefulSet{})
		if err != nil {
			return err
		}
		if image := live.Spec.Template.Spec.Containers[0].Image; image != "postgres:17" {
			return fmt.Errorf("the image is %s", image)
		}
		if live.Annotations["example.com/note"] != "mine" {
			t.Fatal("the user's own annotation is gone")
		}
		return nil
	})
	controlplane.Eventually(t, func(context.Context) error {
		events := plane.Kubectl(t, "get", "events", "-n", c.Namespace, "--field-selector", "reason=FieldTakenBack")
		if !strings.Contains(events, "kubectl-edit") || !strings.Contains(events, "image") {
			return fmt.Errorf("no event names the manager and the field: %s", events)
		}
		return nil
	})
	awaitReady(t, c)
	const path = `.spec.template.spec.containers[name="postgres"].image`
	awaitConflict(t, c, "StatefulSet", "orders", path, "kubectl-edit", v1alpha1.ConflictTakenBack)
	quiet(t, c.Namespace)
	told := plane.Kubectl(t, "get", "events", "-n", c.Namespace, "--field-selector", "reason=FieldTakenBack", "--no-headers")
	if lines := strings.Count(told, "\n"); lines > 1 || strings.Contains(told, "(x") {
		t.Errorf("one change is told of more than once: %s", told)
	}
	if count := takenBack(t) - counted; count != 1 {
		t.Errorf("the metric counts %v fields, want 1", count)
	}
	if lines := log.with("Took back a field", "kubectl-edit", "containers[name=", ".image"); len(lines) != 1 {
		t.Errorf("lines of the log that name the manager and the field: %q, want one", lines)
	}

	plane.Kubectl(t, "scale", "statefulset", c.Name, "-n", c.Namespace, "--replicas=4")
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &appsv1.StatefulSet{})
		if err != nil || *live.Spec.Replicas != 1 {
			return fmt.Errorf("replicas: %d, %w", *live.Spec.Replicas, err)
		}
		return nil
	})
}

func TestChangesOfMetadataOnlyChildrenAreTakenBack(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	services := []string{"orders-ro", "orders-rw"}
	for _, name := range services {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
		edit(t, service, func() { service.Spec.Selector = map[string]string{"somebody": "else"} })
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "orders-instance"}}
	edit(t, config, func() { config.Data[naming.ConfigMapKey] = "{}" })
	controlplane.Eventually(t, func(ctx context.Context) error {
		for _, name := range services {
			if live, err := get(ctx, c.Namespace, name, &corev1.Service{}); err != nil || live.Spec.Selector["somebody"] != "" {
				return fmt.Errorf("selector of %s %v: %w", name, live.Spec.Selector, err)
			}
		}
		if live, err := get(ctx, c.Namespace, config.Name, &corev1.ConfigMap{}); err != nil || live.Data[naming.ConfigMapKey] == "{}" {
			return fmt.Errorf("configuration not restored: %w", err)
		}
		return nil
	})
}

func TestSuggestedLabelsAreYielded(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "orders-rw"}}
	edit(t, service, func() { service.Labels[naming.LabelInstance] = "argocd-app" })
	path := ".metadata.labels." + naming.LabelInstance
	awaitConflict(t, c, "Service", "orders-rw", path, "kubectl-edit", v1alpha1.ConflictYielded)
	quiet(t, c.Namespace)
	live, err := get(t.Context(), c.Namespace, service.Name, &corev1.Service{})
	if err != nil || live.Labels[naming.LabelInstance] != "argocd-app" {
		t.Errorf("label %q: %v", live.Labels[naming.LabelInstance], err)
	}
	awaitReady(t, c)

	// It is set back to what we would set: nothing is left to tell.
	edit(t, service, func() { service.Labels[naming.LabelInstance] = c.Name })
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err == nil && len(live.Status.Conflicts) > 0 {
			err = fmt.Errorf("conflicts %v", live.Status.Conflicts)
		}
		return err
	})
}

// awaitConflict waits until the status of a cluster tells of a conflict.
func awaitConflict(
	t testing.TB, c *v1alpha1.PostgresCluster, kind, name, path, manager string, resolution v1alpha1.ConflictResolution,
) {
	t.Helper()
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, c.Name, &v1alpha1.PostgresCluster{})
		if err != nil {
			return err
		}
		for _, found := range live.Status.Conflicts {
			if found.Kind == kind && found.Name == name && found.FieldPath == path && found.Manager == manager &&
				found.Resolution == resolution && found.Time != nil {
				return nil
			}
		}
		return fmt.Errorf("no conflict of %s %s %s with %s that is %s: %v", kind, name, path, manager, resolution, live.Status.Conflicts)
	})
}

func TestFightIsCalledContested(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	budget := func(value string) error {
		service := corev1ac.Service("orders-ro", c.Namespace).WithSpec(corev1ac.ServiceSpec().
			WithSelector(map[string]string{"fighter": value}))
		return plane.Client.Apply(t.Context(), service, client.FieldOwner("fighter"), client.ForceOwnership)
	}
	for round := range 4 {
		if err := budget(fmt.Sprint(round)); err != nil {
			t.Fatal(err)
		}
		if round == 3 {
			break
		}
		controlplane.Eventually(t, func(ctx context.Context) error {
			live, err := get(ctx, c.Namespace, "orders-ro", &corev1.Service{})
			if err != nil || live.Spec.Selector["fighter"] != "" {
				return fmt.Errorf("round %d: selector %v: %w", round, live.Spec.Selector, err)
			}
			return nil
		})
	}
	condition := awaitCondition(t, c, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonContested)
	if !strings.Contains(condition.Message, `"fighter"`) || !strings.Contains(condition.Message, ".spec.selector") {
		t.Errorf("the message names neither manager nor path: %s", condition.Message)
	}
	awaitConflict(t, c, "Service", "orders-ro", ".spec.selector", "fighter", v1alpha1.ConflictContested)
	// Other children are still brought to the spec, and at rest the fight costs nothing.
	edit(t, c, func() { c.Spec.Parameters = map[string]string{"work_mem": "7MB"} })
	controlplane.Eventually(t, func(ctx context.Context) error {
		live, err := get(ctx, c.Namespace, "orders-instance", &corev1.ConfigMap{})
		if err == nil && !strings.Contains(live.Data[naming.ConfigMapKey], "7MB") {
			err = errors.New("the configuration waits for the end of the fight")
		}
		return err
	})
	// The fight ends: the other manager lets go.
	if err := plane.Client.Apply(t.Context(), corev1ac.Service("orders-ro", c.Namespace), client.FieldOwner("fighter")); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, c)
	awaitConflict(t, c, "Service", "orders-ro", ".spec.selector", "fighter", v1alpha1.ConflictTakenBack)
	quiet(t, c.Namespace)
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	foreign := metav1.ObjectMeta{Labels: map[string]string{"app": "somebody-else"}}
	tests := map[string]struct {
		name   string
		object client.Object
	}{
		"StatefulSet": {"orders", &appsv1.StatefulSet{ObjectMeta: foreign, Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: foreign.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: foreign, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "main", Image: "other:1"}},
			}},
		}}},
		"Service":   {"orders-rw", &corev1.Service{ObjectMeta: foreign, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}},
		"ConfigMap": {"orders-instance", &corev1.ConfigMap{ObjectMeta: foreign, Data: map[string]string{"a": "b"}}},
		"Secret":    {"orders-app", &corev1.Secret{ObjectMeta: foreign, Data: map[string][]byte{"a": []byte("b")}}},
		"Secret of a certificate": {"orders-server", &corev1.Secret{
			ObjectMeta: foreign, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: []byte("mine"), corev1.TLSPrivateKeyKey: []byte("mine")},
		}},
		"ServiceAccount":        {"orders", &corev1.ServiceAccount{ObjectMeta: foreign}},
		"PersistentVolumeClaim": {"data-orders-0", foreignClaim(foreign)},
		"Role":                  {"orders", &rbacv1.Role{ObjectMeta: foreign}},
		"RoleBinding": {"orders", &rbacv1.RoleBinding{ObjectMeta: foreign, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "Role", Name: "other",
		}}},
		"Issuer":      {"orders-ca", &cmv1.Issuer{ObjectMeta: foreign, Spec: cmv1.IssuerSpec{IssuerConfig: cmv1.IssuerConfig{SelfSigned: &cmv1.SelfSignedIssuer{}}}}},
		"Certificate": {"orders-server", foreignCertificate(foreign)},
		"EndpointSlice": {"orders-rw", &discoveryv1.EndpointSlice{
			ObjectMeta: foreign, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		}},
		"PodDisruptionBudget": {"orders", &policyv1.PodDisruptionBudget{ObjectMeta: foreign}},
		"NetworkPolicy":       {"orders", &networkingv1.NetworkPolicy{ObjectMeta: foreign}},
		"Lease":               {"orders", &coordinationv1.Lease{ObjectMeta: foreign}},
	}
	namespace := plane.Namespace(t)
	startOperator(t, namespace)
	world.Start(t, plane, namespace)
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(title, " ")
			name := strings.ToLower(strings.ReplaceAll(title, " ", ""))
			c := cluster(namespace, name, 1)
			test.object.SetNamespace(namespace)
			test.object.SetName(strings.Replace(test.name, "orders", name, 1))
			create(t, test.object)
			create(t, c)
			defer func() {
				if t.Failed() {
					t.Log(plane.Kubectl(t, "get", "pgc,sts,pvc", "-n", namespace, "-o", "wide"), summarise(requests(t, namespace)))
				}
			}()
			condition := awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
			if !strings.Contains(condition.Message, kind) || !strings.Contains(condition.Message, test.object.GetName()) {
				t.Errorf("the message does not name %s %s: %s", kind, test.object.GetName(), condition.Message)
			}
			version, uid := test.object.GetResourceVersion(), test.object.GetUID()
			if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(test.object), test.object); err != nil {
				t.Fatal(err)
			}
			// Controllers write the status of some kinds.
			ownStatus := []string{"PersistentVolumeClaim", "StatefulSet", "Issuer", "Certificate", "PodDisruptionBudget"}
			if !slices.Contains(ownStatus, kind) && test.object.GetResourceVersion() != version {
				t.Error("the foreign object was written")
			}
			for _, entry := range test.object.GetManagedFields() {
				if entry.Manager == naming.FieldManager {
					t.Error("the operator owns fields of a foreign object")
				}
			}
			remove(t, test.object)
			if kind == "Certificate" {
				removeRequests(t, test.object)
			}
			controlplane.Eventually(t, func(ctx context.Context) error {
				err := plane.Client.Get(ctx, client.ObjectKeyFromObject(test.object), test.object)
				if err == nil && test.object.GetUID() == uid {
					err = errors.New("still the foreign object")
				}
				return err
			})
			awaitReady(t, c)
		})
	}
}

func foreignCertificate(meta metav1.ObjectMeta) client.Object {
	return &cmv1.Certificate{ObjectMeta: meta, Spec: cmv1.CertificateSpec{
		SecretName: "somebody-elses", DNSNames: []string{"example.com"}, IssuerRef: cmmetav1.IssuerReference{Name: "none"},
	}}
}

func foreignClaim(meta metav1.ObjectMeta) client.Object {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = storageRequest("1Gi")
	return claim
}

// removeRequests removes what cert-manager asked for on behalf of a Certificate, as the garbage collector does where there
// is one: a request of the same name keeps the next Certificate from being issued.
func removeRequests(t testing.TB, certificate client.Object) {
	t.Helper()
	list := &cmv1.CertificateRequestList{}
	if err := plane.Client.List(t.Context(), list, client.InNamespace(certificate.GetNamespace())); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if request := &list.Items[i]; metav1.IsControlledBy(request, certificate) {
			if err := plane.Client.Delete(t.Context(), request); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
}

// remove deletes an object for good, whatever protects it.
func remove(t testing.TB, object client.Object) {
	t.Helper()
	if err := plane.Client.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, func(ctx context.Context) error {
		live := object.DeepCopyObject().(client.Object)
		if err := plane.Client.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
			return client.IgnoreNotFound(err)
		}
		if live.GetUID() != object.GetUID() || len(live.GetFinalizers()) == 0 {
			return nil
		}
		live.SetFinalizers(nil)
		return plane.Client.Update(ctx, live)
	})
}
