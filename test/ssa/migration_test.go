package ssa_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

const staleAnnotation = "example.com/stale"

// managed are the children that the operator applies.
func managed(t testing.TB, namespace string) []client.Object {
	t.Helper()
	var found []client.Object
	for _, object := range childrenOf(t, namespace) {
		switch object.(type) {
		case *corev1.Secret, *coordinationv1.Lease:
			continue // Created and never applied over.
		}
		owner := metav1.GetControllerOf(object)
		if object.GetLabels()[naming.LabelManagedBy] == naming.ManagedBy && (owner == nil || owner.Kind == v1alpha1.PostgresClusterKind.Kind) {
			found = append(found, object)
		}
	}
	return found
}

// setManagedFields replaces who owns what, as the API server allows everybody to.
func setManagedFields(t testing.TB, object client.Object, entries []metav1.ManagedFieldsEntry) {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": entries}})
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.Client.Patch(t.Context(), object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// writtenBy makes an object look as if another manager had written it, with a stale annotation besides.
func writtenBy(t testing.TB, object client.Object, manager string, operation metav1.ManagedFieldsOperationType) {
	t.Helper()
	entries := object.GetManagedFields()
	for i := range entries {
		if entries[i].Manager != naming.FieldManager || entries[i].Subresource != "" {
			continue
		}
		entries[i].Manager, entries[i].Operation = manager, operation
		owned := fieldpath.NewSet()
		if err := owned.FromJSON(bytes.NewReader(entries[i].FieldsV1.GetRawBytes())); err != nil {
			t.Fatal(err)
		}
		owned.Insert(fieldpath.MakePathOrDie("metadata", "annotations", staleAnnotation))
		fields, err := owned.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		entries[i].FieldsV1 = metav1.NewFieldsV1(string(fields))
	}
	annotate := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"x"}}}`, staleAnnotation)
	if err := plane.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, annotate), client.FieldOwner("nobody")); err != nil {
		t.Fatal(err)
	}
	entries = append(entries, slices.DeleteFunc(object.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == naming.FieldManager || e.Manager == "nobody" || slices.ContainsFunc(entries, func(o metav1.ManagedFieldsEntry) bool {
			return o.Manager == e.Manager && o.Operation == e.Operation && o.Subresource == e.Subresource
		})
	})...)
	if manager == "before-first-apply" {
		entries = []metav1.ManagedFieldsEntry{{}} // This is how a client forgets all; the name is the server's.
	}
	setManagedFields(t, object, entries)
}

// TestChildrenOfEarlierManagersAreTakenOver: whoever wrote the children of a cluster for its operator, in whatever way,
// the operator ends as their only owner, nothing of theirs is left behind, and no pod is replaced.
func TestChildrenOfEarlierManagersAreTakenOver(t *testing.T) {
	t.Parallel()
	type writer struct {
		manager   string
		operation metav1.ManagedFieldsOperationType
	}
	rounds := [][]writer{
		{{"manager", metav1.ManagedFieldsOperationUpdate}},
		{
			{"Go-http-client", metav1.ManagedFieldsOperationUpdate},
			{"kubectl-client-side-apply", metav1.ManagedFieldsOperationUpdate},
			{naming.FieldManager, metav1.ManagedFieldsOperationUpdate},
			{naming.FormerFieldManagers[0], metav1.ManagedFieldsOperationApply},
		},
		{{"before-first-apply", metav1.ManagedFieldsOperationUpdate}}, // The last: it keeps fields of some kinds.
	}
	c, _, o := converged(t, 1)
	pods := podUIDs(t, c)
	for _, writers := range rounds {
		o.stop()
		for i, object := range managed(t, c.Namespace) {
			w := writers[i%len(writers)]
			writtenBy(t, object, w.manager, w.operation)
		}
		o = startOperator(t, c.Namespace)
		controlplane.Eventually(t, func(context.Context) error {
			for i, object := range managed(t, c.Namespace) {
				w := writers[i%len(writers)]
				if err := onlyOurs(object, w.manager); err != nil {
					return fmt.Errorf("written by %s: %w", w.manager, err)
				}
			}
			return nil
		})
		awaitReady(t, c)
	}
	for name, uid := range podUIDs(t, c) {
		if pods[name] != uid {
			t.Errorf("pod %s was replaced", name)
		}
	}
	if events := plane.Kubectl(t, "get", "events", "-n", c.Namespace); strings.Contains(events, "FieldTakenBack") {
		t.Errorf("what was taken over is called a conflict: %s", events)
	}
}

func onlyOurs(object client.Object, writer string) error {
	applied := 0
	_, claim := object.(*corev1.PersistentVolumeClaim)
	// An unknown writer keeps what it has of kinds that others fill.
	goes := writer != "before-first-apply" || !claim && !strings.Contains(fmt.Sprintf("%T", object), "EndpointSlice")
	for _, entry := range object.GetManagedFields() {
		ours := entry.Manager == naming.FieldManager && entry.Subresource == ""
		switch {
		case ours && entry.Operation == metav1.ManagedFieldsOperationApply:
			applied++
		case ours, entry.Manager == writer && entry.Subresource == "" && goes:
			return fmt.Errorf("%T %s still has an entry of %s (%s)", object, object.GetName(), entry.Manager, entry.Operation)
		}
	}
	if applied != 1 {
		return fmt.Errorf("%T %s has %d entries of ours", object, object.GetName(), applied)
	}
	if object.GetAnnotations()[staleAnnotation] != "" && goes {
		return fmt.Errorf("%T %s still has a stale field", object, object.GetName())
	}
	return nil
}

// TestStatefulSetOfCreateOrUpdate is really made and updated by an operator of the usual kind: what it set and we do not
// goes, and since that changes the pods' template, the pod is made anew, once.
func TestStatefulSetOfCreateOrUpdate(t *testing.T) {
	t.Parallel()
	c, _, o := converged(t, 1)
	o.stop()
	made := podUIDs(t, c)
	old, err := get(t.Context(), c.Namespace, c.Name, &appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	plane.Kubectl(t, "delete", "statefulset", c.Name, "-n", c.Namespace, "--cascade=orphan")
	seed := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	for _, image := range []string{"postgres:16", "postgres:17"} {
		_, err = controllerutil.CreateOrUpdate(t.Context(), client.WithFieldOwner(plane.Client, "manager"), seed, func() error {
			seed.Labels, seed.Spec = old.Labels, *old.Spec.DeepCopy()
			container := &seed.Spec.Template.Spec.Containers[0]
			container.Image = image
			container.Env = append(container.Env, corev1.EnvVar{Name: "OLD", Value: "x"})
			seed.Spec.Template.Annotations[naming.AnnotationTemplateHash] = "of-an-earlier-version"
			return controllerutil.SetControllerReference(c, seed, plane.Scheme)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Its pod is made from the template that it has.
	remove(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "orders-0", UID: made["orders-0"]}})
	var pods map[string]types.UID
	controlplane.Eventually(t, func(context.Context) error {
		if pods = podUIDs(t, c); pods["orders-0"] == "" || pods["orders-0"] == made["orders-0"] {
			return errors.New("the pod has not been made anew")
		}
		return nil
	})
	startOperator(t, c.Namespace)
	controlplane.Eventually(t, func(ctx context.Context) error {
		set, err := get(ctx, c.Namespace, c.Name, &appsv1.StatefulSet{})
		if err != nil {
			return err
		}
		for _, env := range set.Spec.Template.Spec.Containers[0].Env {
			if env.Name == "OLD" {
				return errors.New("OLD is still there")
			}
		}
		return onlyOurs(set, "manager")
	})
	controlplane.Eventually(t, func(context.Context) error {
		if podUIDs(t, c)["orders-0"] == pods["orders-0"] {
			return errors.New("the pod still has what was removed from its template")
		}
		return nil
	})
	awaitReady(t, c)
}

// racing lets somebody else write an object just before the first migration of it is sent.
type racing struct {
	client.Client
	once *atomic.Bool
	race func()
}

func (r racing) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if object.GetObjectKind().GroupVersionKind().Kind == "Service" && r.once.CompareAndSwap(false, true) {
		r.race()
	}
	return r.Client.Patch(ctx, object, patch, opts...)
}

func TestMigrationLosesNoConcurrentWrite(t *testing.T) {
	t.Parallel()
	c, _, o := converged(t, 1)
	o.stop()
	service, err := get(t.Context(), c.Namespace, "orders-r", &corev1.Service{})
	if err != nil {
		t.Fatal(err)
	}
	writtenBy(t, service, "manager", metav1.ManagedFieldsOperationUpdate)
	once := &atomic.Bool{}
	startOperatorWith(t, c.Namespace, func(_ *rest.Config, options *ctrl.Options) {
		options.NewClient = func(config *rest.Config, clientOptions client.Options) (client.Client, error) {
			inner, failed := client.New(config, clientOptions)
			return racing{inner, once, func() {
				plane.Kubectl(t, "annotate", "service", "orders-r", "-n", c.Namespace, "example.com/note=mine")
			}}, failed
		}
	})
	controlplane.Eventually(t, func(ctx context.Context) error {
		if service, err = get(ctx, c.Namespace, "orders-r", &corev1.Service{}); err != nil {
			return err
		}
		return onlyOurs(service, "manager")
	})
	live, err := get(t.Context(), c.Namespace, "orders-r", &corev1.Service{})
	if err != nil || live.Annotations["example.com/note"] != "mine" || !once.Load() {
		t.Errorf("the other writer's change is lost (raced: %v): %v, %v", once.Load(), live.Annotations, err)
	}
}

// TestSeedStatefulSetIsLeftAlone: what the first operator of this kind made has other fields that cannot be changed, and
// instances without an agent. Nothing of it is touched, and the condition says what to do.
func TestSeedStatefulSetIsLeftAlone(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		claim  bool
		object string
	}{
		"with volumes":    {true, `PersistentVolumeClaim "data-orders-0"`},
		"without volumes": {false, `StatefulSet "orders"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := plane.Namespace(t)
			c := cluster(namespace, "orders", 1)
			create(t, c)
			seed := seedStatefulSet(t, c)
			var claim *corev1.PersistentVolumeClaim
			if test.claim {
				claim = foreignClaim(metav1.ObjectMeta{Namespace: namespace, Name: "data-orders-0", Labels: seed.Spec.Selector.MatchLabels}).(*corev1.PersistentVolumeClaim)
				create(t, claim)
			} else {
				world.Start(t, plane, namespace) // Volumes get bound.
			}
			startOperator(t, namespace)
			condition := awaitCondition(t, c, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
			if !strings.Contains(condition.Message, test.object) || !strings.Contains(condition.Message, "another name") {
				t.Error(condition.Message)
			}
			live, err := get(t.Context(), namespace, "orders", &appsv1.StatefulSet{})
			if err != nil || live.UID != seed.UID || live.Generation != seed.Generation {
				t.Errorf("the StatefulSet was changed: %v", err)
			}
			if test.claim {
				version := claim.ResourceVersion
				if claim, err = get(t.Context(), namespace, claim.Name, claim); err != nil || claim.ResourceVersion != version {
					t.Errorf("the claim was changed: %v", err)
				}
			}
		})
	}
}

func seedStatefulSet(t testing.TB, c *v1alpha1.PostgresCluster) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{naming.LabelInstance: c.Name}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	_, err := controllerutil.CreateOrUpdate(t.Context(), client.WithFieldOwner(plane.Client, "manager"), set, func() error {
		set.Spec = appsv1.StatefulSetSpec{
			Replicas: c.Spec.Replicas, ServiceName: c.Name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "postgres", Image: "postgres:16",
					Ports:        []corev1.ContainerPort{{Name: "pg", ContainerPort: 5432}},
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/lib/postgresql/data"}},
				}},
			}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: storageRequest("20Gi")},
				},
			}},
		}
		return controllerutil.SetControllerReference(c, set, plane.Scheme)
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}
