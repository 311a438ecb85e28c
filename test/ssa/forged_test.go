package ssa_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

// TestForgedAnnotations: what others write into our annotations stops no care for a cluster, and changes no database.
func TestForgedAnnotations(t *testing.T) {
	t.Parallel()
	namespace := plane.Namespace(t)
	w := world.Start(t, plane, namespace)
	startOperator(t, namespace)
	c := cluster(namespace, "orders", 1)
	create(t, c)
	awaitReady(t, c)
	uids := podUIDs(t, c)

	t.Run("of a StatefulSet, about its volumes", func(t *testing.T) {
		// The generation makes the guard look at the volumes again.
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name}}
		edit(t, set, func() {
			set.Annotations[naming.AnnotationGeneration] = "0"
			set.Annotations[naming.AnnotationVolumes] = `{"storage":"900Gi","storageClassName":"other"}`
		})
		edit(t, c, func() { c.Spec.Replicas = new(int32(2)) })
		awaitReady(t, c)
		now, err := get(t.Context(), namespace, c.Name, &appsv1.StatefulSet{})
		if err != nil {
			t.Fatal(err)
		}
		if now.Annotations[naming.AnnotationVolumes] != `{"storage":"20Gi"}` || *now.Spec.Replicas != 2 {
			t.Errorf("%v, %d replicas", now.Annotations, *now.Spec.Replicas)
		}
	})
	t.Run("of pods that no StatefulSet of ours made", func(t *testing.T) {
		const report = `{"role":"Primary","state":"Running","term":2000000000,"systemID":"7300000000000000001","dataVersion":"18"}`
		for ordinal := range 20 {
			create(t, forgedPod(c.Namespace, naming.Cluster(c.Name), int32(7+ordinal), report))
		}
		edit(t, c, func() { c.Spec.Parameters = map[string]string{"work_mem": "8MB"} })
		awaitReady(t, c)
		if live, err := get(t.Context(), namespace, c.Name, c); err != nil || live.Status.Version != "17" ||
			live.Status.Primary != "orders-0" || len(live.Status.Instances) != 2 {
			t.Errorf("%+v, %v", live.Status, err)
		}
	})
	t.Run("of a StatefulSet's pods, about their template", func(t *testing.T) {
		for i := range 5 {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name}}
			forged := fmt.Sprint("forged-", i)
			edit(t, set, func() { set.Spec.Template.Annotations[naming.AnnotationTemplateHash] = forged })
			controlplane.Eventually(t, func(ctx context.Context) error {
				now, err := get(ctx, namespace, c.Name, &appsv1.StatefulSet{})
				if err == nil && now.Spec.Template.Annotations[naming.AnnotationTemplateHash] == forged && i < 3 {
					return fmt.Errorf("%s is still there", forged)
				}
				return err
			})
		}
	})
	t.Run("of a pod, with what no status takes", func(t *testing.T) {
		w.With(func() { w.Frozen = true }) // No agent puts its report right.
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders-1"}}
		edit(t, pod, func() {
			pod.Annotations[naming.AnnotationReport] = `{"role":"King","state":"` + strings.Repeat("x", 100) + `"}`
		})
		controlplane.Eventually(t, func(ctx context.Context) error {
			live, err := get(ctx, namespace, c.Name, c)
			if err != nil {
				return err
			}
			for _, instance := range live.Status.Instances {
				if instance.Name == pod.Name && instance.Role == "Unknown" {
					return nil
				}
			}
			return fmt.Errorf("the forged report does not show: %+v", live.Status.Instances)
		})
	})
	for name, uid := range uids {
		if now := podUIDs(t, c)[name]; now != uid {
			t.Errorf("%s was restarted", name)
		}
	}
}

// forgedPod looks like an instance, and is of another StatefulSet.
func forgedPod(namespace string, names naming.Cluster, ordinal int32, report string) client.Object {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: names.Instance(ordinal), Labels: names.Labels(),
			Annotations: map[string]string{naming.AnnotationReport: report},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "StatefulSet", Name: "evil", UID: types.UID("evil"), Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "postgres", Image: "evil"}}},
	}
}

// TestKeysOfItemsThatOthersChange: a port whose number somebody changed is his own port to the API server, and has the
// name that ours needs.
func TestKeysOfItemsThatOthersChange(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 2)
	namespace := c.Namespace
	uids := podUIDs(t, c)

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders-ro"}}
	edit(t, service, func() { service.Spec.Ports[0].Port = 6432 })
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name}}
	edit(t, set, func() { set.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort = 6432 })
	controlplane.Eventually(t, func(ctx context.Context) error {
		ro, err := get(ctx, namespace, service.Name, &corev1.Service{})
		if err != nil {
			return err
		}
		instances, err := get(ctx, namespace, set.Name, &appsv1.StatefulSet{})
		if err != nil {
			return err
		}
		ports := instances.Spec.Template.Spec.Containers[0].Ports
		if len(ro.Spec.Ports) != 1 || ro.Spec.Ports[0].Port != 5432 || len(ports) != 3 || ports[0].ContainerPort != 5432 {
			return fmt.Errorf("ports %v and %v", ro.Spec.Ports, ports)
		}
		return nil
	})
	awaitReady(t, c)
	wantAtRest(t, c, func() { touch(t, namespace, "orders-0", "x") })
	for name, uid := range podUIDs(t, c) {
		if uids[name] != uid {
			t.Errorf("%s was restarted", name)
		}
	}
	live, err := get(t.Context(), namespace, c.Name, c)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, conflict := range live.Status.Conflicts {
		told[conflict.Kind+" "+conflict.Name+" "+conflict.FieldPath] = true
	}
	for _, field := range []string{"Service orders-ro .spec.ports", "StatefulSet orders .spec.template.spec"} {
		if !told[field] {
			t.Errorf("nobody is told of %s: %v", field, told)
		}
	}
}
