package crash_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// flow is something that users do, and what the operator writes because of it.
type flow struct {
	replicas int32
	// spec of the cluster besides replicas, version and storage.
	spec func(*v1alpha1.PostgresClusterSpec)
	// creates says that act begins without a cluster; else it begins with one that is Ready.
	creates bool
	// prepare is called before act.
	prepare func(*run)
	act     func(*run)
	// onWrite is called before each write that counts, crashed between an operator and its successor.
	onWrite func(r *run, number int)
	crashed func(*run)
	// ended is nil when the flow has ended; by default it ends in a Ready cluster.
	ended func(context.Context, *run) error
	// has and lacks are what stands, or does not stand, in the state that the flow ends in.
	has, lacks []string
	// anyVolumes says that it depends on the moment which volumes are left.
	anyVolumes bool
}

type spec = v1alpha1.PostgresClusterSpec

func editing(change func(*spec)) func(*run) { return func(r *run) { r.edit(change) } }

// deleting deletes the cluster in one of the ways that there are.
func deleting(policy metav1.DeletionPropagation) func(*run) {
	return func(r *run) {
		r.world.With(func() { r.world.Collects = true })
		if err := plane.Client.Delete(r.t.Context(), r.cluster, client.PropagationPolicy(policy)); err != nil {
			r.t.Error(err)
		}
	}
}

func deletedWithVolumes(s *spec) { s.DeletionPolicy = v1alpha1.DeletionPolicyDelete }

func three(s *spec) { s.Replicas = new(int32(3)) }

var flows = map[string]*flow{
	"create 1": {creates: true, replicas: 1, act: (*run).create, has: []string{"# Pod orders-0", "# StatefulSet orders"}},
	"create 3": {creates: true, replicas: 3, act: (*run).create, has: []string{"# Pod orders-2", "# Lease orders"}},
	"create over kept volumes": {
		creates: true, replicas: 2, prepare: keptVolume, act: (*run).create,
		has: []string{"# PersistentVolumeClaim data-orders-0, kept", "systemID: \"7300000000000000001\""},
	},
	"create over orphans": {
		creates: true, replicas: 1, prepare: leaveOrphans, act: (*run).create,
		has: []string{"# Pod orders-0, kept", "# Secret orders-app, kept", "# PersistentVolumeClaim data-orders-0, kept"},
	},
	"grow": {
		replicas: 2, act: editing(func(s *spec) { s.Storage = "30Gi" }),
		has:   []string{"# Pod orders-0, kept", "# Pod orders-1, kept", "storage: 30Gi"},
		lacks: []string{"storage: 20Gi"},
	},
	"grow and scale up": {
		replicas: 1, act: editing(func(s *spec) { s.Storage = "30Gi"; three(s) }),
		has: []string{"# Pod orders-0, kept", "# Pod orders-2, new"}, lacks: []string{"storage: 20Gi"},
	},
	"parameters": {
		replicas: 2, act: editing(func(s *spec) { s.Parameters = map[string]string{"work_mem": "9MB"} }),
		has: []string{"# Pod orders-0, kept", "work_mem"},
	},
	"scale up": {
		replicas: 1, act: editing(three),
		has: []string{"# Pod orders-0, kept", "# Pod orders-2, new", "# Secret orders-app, kept"},
	},
	"scale down": {
		replicas: 3, act: editing(func(s *spec) { s.Replicas = new(int32(1)) }),
		has: []string{"# Pod orders-0, kept", "# PersistentVolumeClaim data-orders-2, kept"}, lacks: []string{"# Pod orders-1"},
	},
	"roll": {
		replicas: 2,
		act: editing(func(s *spec) {
			s.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		}),
		has: []string{"# Pod orders-0, new", "# Pod orders-1, new", "memory: 64Mi"},
	},
	"field goes": {
		replicas: 1, spec: func(s *spec) { s.NodeSelector = map[string]string{"disk": "fast"} },
		act: editing(func(s *spec) { s.NodeSelector = nil }), lacks: []string{"disk"},
	},
	"child goes": {replicas: 1, act: staleChild, ended: noStaleChild, lacks: []string{"# Service orders-old"}},
	"take back": {
		replicas: 1, ended: selectorIsOurs, has: []string{"# Pod orders-0, kept"}, lacks: []string{"theirs"},
		act: func(r *run) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "orders-ro"}}
			r.change(service, func() { service.Spec.Selector = map[string]string{"theirs": "yes"} })
		},
	},
	"pause": {
		replicas: 1, act: editing(func(s *spec) { s.Paused, s.Storage = true, "30Gi"; three(s) }),
		ended: paused, has: []string{"# Pod orders-0, kept"}, lacks: []string{"# Pod orders-1", "storage: 30Gi\n    owned"},
	},
	"resume": {
		replicas: 1,
		prepare:  func(r *run) { r.edit(func(s *spec) { s.Paused = true; three(s) }); r.await(paused) },
		act:      editing(func(s *spec) { s.Paused = false }), has: []string{"# Pod orders-2, new"},
	},
	"volumes are to go": {
		replicas: 2, act: editing(deletedWithVolumes),
		has: []string{"# PersistentVolumeClaim data-orders-0, kept"},
	},
	"volumes are to stay": {
		replicas: 2, spec: deletedWithVolumes,
		act: editing(func(s *spec) { s.DeletionPolicy = v1alpha1.DeletionPolicyRetain }),
	},
	"delete in the background, Retain": {
		replicas: 2, act: deleting(metav1.DeletePropagationBackground), ended: gone,
		has: []string{"# PersistentVolumeClaim data-orders-1, kept"},
	},
	"delete in the background, Delete": {
		replicas: 2, spec: deletedWithVolumes, act: deleting(metav1.DeletePropagationBackground), ended: gone,
		lacks: []string{"#"},
	},
	"delete in the foreground, Retain": {
		replicas: 3, act: deleting(metav1.DeletePropagationForeground), ended: gone,
		has: []string{"# PersistentVolumeClaim data-orders-2, kept"},
	},
	"delete in the foreground, Delete": {
		replicas: 1, spec: deletedWithVolumes, act: deleting(metav1.DeletePropagationForeground), ended: gone,
		lacks: []string{"#"},
	},
	"delete and leave orphans": {
		replicas: 1, act: deleting(metav1.DeletePropagationOrphan), ended: orphaned,
		has: []string{"# Pod orders-0, kept", "# Secret orders-app, kept"}, lacks: []string{"# PostgresCluster", "kind: PostgresCluster"},
	},
	"delete while half made":                            halfMade(metav1.DeletePropagationBackground, nil),
	"delete while half made, in the foreground, Delete": halfMade(metav1.DeletePropagationForeground, deletedWithVolumes),
}

// halfMade deletes a cluster while the operator makes its children, or while there is no operator.
func halfMade(policy metav1.DeletionPropagation, policySpec func(*spec)) *flow {
	return &flow{
		creates: true, replicas: 2, spec: policySpec, act: (*run).create, ended: gone, anyVolumes: true,
		lacks: []string{"# Pod", "# StatefulSet", "# Secret"},
		onWrite: func(r *run, number int) {
			if number == 10 {
				deleting(policy)(r)
			}
		},
		crashed: func(r *run) {
			live := &v1alpha1.PostgresCluster{}
			err := plane.Client.Get(r.t.Context(), client.ObjectKeyFromObject(r.cluster), live)
			if err == nil && live.DeletionTimestamp == nil {
				deleting(policy)(r)
			}
		},
	}
}

// keptVolume is what an earlier cluster of the name has left.
func keptVolume(r *run) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: "data-orders-0", Labels: naming.Cluster("orders").Labels(),
			Annotations: map[string]string{naming.AnnotationSystemID: r.world.SystemID, naming.AnnotationDataVersion: "17"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("20Gi"),
			}},
		},
	}
	if err := plane.Client.Create(r.t.Context(), claim); err != nil {
		r.t.Fatal(err)
	}
}

// leaveOrphans makes a cluster and deletes it without its children.
func leaveOrphans(r *run) {
	again := r.cluster.DeepCopy()
	r.create()
	r.await(ready)
	deleting(metav1.DeletePropagationOrphan)(r)
	r.await(orphaned)
	r.world.With(func() { r.world.Collects = false })
	r.cluster = again
}

// staleChild is one of those that an older operator made, and that is no longer rendered.
func staleChild(r *run) {
	err := plane.Client.Create(r.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: "orders-old", Labels: naming.Cluster("orders").Labels(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.cluster, v1alpha1.PostgresClusterKind)},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func noStaleChild(ctx context.Context, r *run) error {
	err := plane.Client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "orders-old"}, &corev1.Service{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("the child is still there: %w", err)
}

func selectorIsOurs(ctx context.Context, r *run) error {
	service := &corev1.Service{}
	if err := plane.Client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "orders-ro"}, service); err != nil {
		return err
	}
	if service.Spec.Selector["theirs"] != "" {
		return fmt.Errorf("the selector is %v", service.Spec.Selector)
	}
	return nil
}
