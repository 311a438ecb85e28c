package api

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1ac "github.com/acme/pg-operator/apis/applyconfiguration/apis/v1alpha1"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestApplyConfigurationRoundTrip applies a full spec through the generated configurations: what comes back is what
// was sent, and the applier owns that and nothing else.
func TestApplyConfigurationRoundTrip(t *testing.T) {
	namespace := plane.Namespace(t)
	quantities := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	full := func() *v1alpha1ac.PostgresClusterApplyConfiguration {
		return v1alpha1ac.PostgresCluster("orders-db", namespace).WithSpec(v1alpha1ac.PostgresClusterSpec().
			WithReplicas(3).WithVersion("16").WithStorage("20Gi").WithStorageClassName("fast").
			WithImage("postgres:16.4").WithPaused(true).WithParameters(map[string]string{"work_mem": "8MB"}).
			WithDeletionPolicy(v1alpha1.DeletionPolicyDelete).WithUpgradePolicy(v1alpha1.UpgradePolicyAllowMajor).
			WithResources(corev1ac.ResourceRequirements().WithRequests(quantities).WithLimits(quantities)).
			WithNodeSelector(map[string]string{"disk": "ssd"}).
			WithTolerations(corev1ac.Toleration().WithKey("db").WithOperator(corev1.TolerationOpExists)).
			WithAffinity(corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
				WithRequiredDuringSchedulingIgnoredDuringExecution(corev1ac.PodAffinityTerm().WithTopologyKey("zone")))).
			WithTopologySpreadConstraints(corev1ac.TopologySpreadConstraint().WithMaxSkew(1).WithTopologyKey("zone").
				WithWhenUnsatisfiable(corev1.DoNotSchedule)))
	}
	if err := plane.Client.Apply(t.Context(), full(), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	sent := &v1alpha1.PostgresCluster{}
	text, err := json.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, sent); err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.PostgresCluster{}
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(sent), stored); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(sent.Spec, stored.Spec) {
		t.Errorf("stored %+v, sent %+v", stored.Spec, sent.Spec)
	}
	want := `{"f:spec":{"f:affinity":{"f:podAntiAffinity":{"f:requiredDuringSchedulingIgnoredDuringExecution":{}}},` +
		`"f:deletionPolicy":{},"f:image":{},"f:nodeSelector":{"f:disk":{}},"f:parameters":{"f:work_mem":{}},"f:paused":{},` +
		`"f:replicas":{},"f:resources":{"f:limits":{"f:memory":{}},"f:requests":{"f:memory":{}}},"f:storage":{},` +
		`"f:storageClassName":{},"f:tolerations":{},` +
		`"f:topologySpreadConstraints":{"k:{\"topologyKey\":\"zone\",\"whenUnsatisfiable\":\"DoNotSchedule\"}":` +
		`{".":{},"f:maxSkew":{},"f:topologyKey":{},"f:whenUnsatisfiable":{}}},"f:upgradePolicy":{},"f:version":{}}}`
	if got := string(stored.ManagedFields[0].FieldsV1.GetRawBytes()); len(stored.ManagedFields) != 1 || got != want {
		t.Errorf("owned\n%s, want\n%s", got, want)
	}
}
