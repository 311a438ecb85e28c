package status

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// TestAnInstanceIsWhatTheSpecSays: each fact alone makes it another.
func TestAnInstanceIsWhatTheSpecSays(t *testing.T) {
	size := resource.MustParse("20Gi")
	set := &snapshot.Cluster{StatefulSet: &appsv1.StatefulSet{}}
	set.StatefulSet.Status.UpdateRevision = "present"
	set.StatefulSet.Spec.Template.Spec = containers("agent", "postgres:17")
	tests := map[string]struct {
		change func(*snapshot.Instance)
		lacks  string
	}{
		"as asked":                   {func(*snapshot.Instance) {}, ""},
		"a full version is known":    {func(i *snapshot.Instance) { i.Report.ServerVersion = "17.5" }, ""},
		"a larger volume than asked": {func(i *snapshot.Instance) { capacity(i, "40Gi") }, ""},
		"no pod":                     {func(i *snapshot.Instance) { i.Pod, i.Report = nil, nil }, "is missing"},
		"a pod that ends":            {func(i *snapshot.Instance) { i.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "is terminating"},
		"a pod that is not ready":    {func(i *snapshot.Instance) { i.Pod.Status.Conditions = nil }, "is not ready"},
		"nothing reported":           {func(i *snapshot.Instance) { i.Report = nil }, "has not reported"},
		"ready, but not streaming":   {func(i *snapshot.Instance) { i.Report.State = contract.StateNotStreaming }, "is not streaming"},
		"ready, but stopping":        {func(i *snapshot.Instance) { i.Report.State = contract.StateStopping }, "is stopping"},
		"other data":                 {func(i *snapshot.Instance) { i.Report.SystemID = "43" }, "has the data of another cluster"},
		"a second primary":           {func(i *snapshot.Instance) { i.Report.Role = contract.RolePrimary }, "is no replica"},
		"no role":                    {func(i *snapshot.Instance) { i.Report.Role = "" }, "is no replica"},
		"no Lease":                   {func(i *snapshot.Instance) { i.Report.LeaseMissing = true }, "does not find the Lease"},
		"an older template":          {func(i *snapshot.Instance) { i.Pod.Annotations = nil }, "was made from an older template"},
		"another image of an earlier StatefulSet": {func(i *snapshot.Instance) {
			i.Pod.Labels, i.Pod.Spec = revision("earlier"), containers("agent", "evil")
		}, "was made while somebody had changed the StatefulSet"},
		"an image that a policy rewrote": {func(i *snapshot.Instance) {
			i.Pod.Labels, i.Pod.Spec = revision("present"), containers("agent", "mirror/postgres:17")
		}, ""},
		"an older agent": {func(i *snapshot.Instance) {
			i.Pod.Labels, i.Pod.Spec = revision("earlier"), containers("older", "postgres:17")
		}, ""},
		"an older agent, and all images rewritten": {func(i *snapshot.Instance) {
			i.Pod.Labels, i.Pod.Spec = revision("earlier"), containers("mirror/older", "mirror/postgres:17")
		}, ""},
		"data of an older version":    {func(i *snapshot.Instance) { i.Report.DataVersion = "16" }, "runs PostgreSQL 16"},
		"programs of another version": {func(i *snapshot.Instance) { i.Report.ServerVersion = "170.1" }, "runs PostgreSQL 17"},
		"other settings":              {func(i *snapshot.Instance) { i.Report.SettingsHash = "other" }, "has other settings in force"},
		"settings that wait": {
			func(i *snapshot.Instance) { i.Report.PendingRestart = []string{"b", "a"} }, "waits for a restart for a, b",
		},
		"no volume":               {func(i *snapshot.Instance) { i.Claim = nil }, "has no volume"},
		"a volume that is lost":   {func(i *snapshot.Instance) { i.Claim.Status.Phase = corev1.ClaimLost }, "has a volume that is not bound"},
		"a volume of no capacity": {func(i *snapshot.Instance) { i.Claim.Status.Capacity = nil }, "has a volume that is not bound"},
		"a smaller volume":        {func(i *snapshot.Instance) { capacity(i, "10Gi") }, "has 10Gi of 20Gi"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := asked{template: "t", settings: "s", version: "17", systemID: "42", size: &size, primary: "db-0", altered: set.Altered}
			instance := snapshot.Instance{
				Name: "db-1", Ordinal: 1,
				Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{naming.AnnotationTemplateHash: "t"}}},
				Claim: &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{
					Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: size},
				}},
				Report: &contract.Report{
					Role: contract.RoleReplica, State: contract.StateRunning, SystemID: "42", DataVersion: "17", SettingsHash: "s",
				},
			}
			instance.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			test.change(&instance)
			if lacks := a.lacks(instance); lacks != test.lacks {
				t.Errorf("%q, want %q", lacks, test.lacks)
			}
		})
	}
}

func capacity(i *snapshot.Instance, size string) {
	i.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func revision(name string) map[string]string {
	return map[string]string{appsv1.ControllerRevisionHashLabelKey: name}
}

func containers(agent, postgres string) corev1.PodSpec {
	return corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: naming.ContainerInstall, Image: agent}},
		Containers:     []corev1.Container{{Name: naming.ContainerPostgres, Image: postgres}},
	}
}
