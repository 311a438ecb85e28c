package reconciler

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// TestInvalid judges generation 7 of a cluster by the StatefulSet that an earlier one was rendered to.
func TestInvalid(t *testing.T) {
	tests := map[string]struct {
		storage, class string
		// rendered is the StatefulSet's generation and what it remembers of volumes.
		rendered, volumes string
		capacity          string
		want              []string
	}{
		"the same":      {storage: "20Gi", rendered: "6", volumes: `{"storage":"20Gi"}`, capacity: "20Gi"},
		"grows":         {storage: "30Gi", rendered: "6", volumes: `{"storage":"20Gi"}`, capacity: "20Gi"},
		"shrinks":       {storage: "10Gi", rendered: "6", volumes: `{"storage":"20Gi"}`, capacity: "20Gi", want: []string{"spec.storage"}},
		"class changed": {storage: "20Gi", class: "slow", rendered: "6", volumes: `{"storage":"20Gi","storageClassName":"fast"}`, want: []string{"spec.storageClassName"}},
		"class set":     {storage: "20Gi", class: "slow", rendered: "6", volumes: `{"storage":"20Gi"}`, want: []string{"spec.storageClassName"}},
		"back after a growth that was refused": {
			storage: "20Gi", rendered: "6", volumes: `{"storage":"50Gi"}`, capacity: "20Gi",
		},
		"smaller than adopted volumes, from the beginning": {
			storage: "20Gi", rendered: "6", volumes: `{"storage":"20Gi"}`, capacity: "24Gi",
		},
		"accepted before":               {storage: "10Gi", rendered: "7", volumes: `{"storage":"20Gi"}`, capacity: "20Gi"},
		"by an operator that kept less": {storage: "10Gi", rendered: "6", capacity: "20Gi"},
		"no StatefulSet":                {storage: "10Gi", capacity: "20Gi"},
		"wrong by itself":               {storage: "0Gi", want: []string{"spec.storage"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			replicas, controller := int32(1), true
			object := &v1alpha1.PostgresCluster{Spec: v1alpha1.PostgresClusterSpec{
				Replicas: &replicas, Version: "17", Storage: test.storage,
			}}
			object.UID, object.Generation = "u", 7
			if test.class != "" {
				object.Spec.StorageClassName = &test.class
			}
			s := &snapshot.Cluster{Object: object}
			if test.rendered != "" {
				s.StatefulSet = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
					OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: &controller}},
					Annotations: map[string]string{
						naming.AnnotationGeneration: test.rendered, naming.AnnotationVolumes: test.volumes,
					},
				}}
			}
			if test.capacity != "" {
				claim := &corev1.PersistentVolumeClaim{}
				claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(test.capacity)}
				s.Instances = []snapshot.Instance{{Claim: claim}}
			}
			var fields []string
			for _, err := range invalid(s) {
				fields = append(fields, err.Field)
			}
			if !slices.Equal(fields, test.want) {
				t.Errorf("invalid %q, want %q", fields, test.want)
			}
		})
	}
}
