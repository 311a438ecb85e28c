package decide_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

func observed(change func(*snapshot.Cluster)) *snapshot.Cluster {
	replicas := int32(2)
	s := &snapshot.Cluster{
		Object: &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "ns", UID: "1", Generation: 1},
			Spec:       v1alpha1.PostgresClusterSpec{Replicas: &replicas, Version: "17", Storage: "20Gi"},
		},
		StatefulSet: &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "set"},
			Spec: appsv1.StatefulSetSpec{
				Replicas:             &replicas,
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim("data", "20Gi", "")},
			},
		},
	}
	s.StatefulSet.Spec.Template.Spec.Containers = []corev1.Container{{Name: "postgres", Image: "mine:1"}}
	for ordinal := range replicas {
		volume := claim(s.Names().PVC(ordinal), "20Gi", "20Gi")
		role := contract.RoleReplica
		if ordinal == 0 {
			role = contract.RolePrimary
		}
		s.Instances = append(s.Instances, snapshot.Instance{
			Name: s.Names().Instance(ordinal), Ordinal: ordinal, Claim: &volume, Pod: ready(),
			Report: &contract.Report{Role: role, Term: 1, SystemID: "42", DataVersion: "17", State: contract.StateRunning},
		})
	}
	change(s)
	return s
}

func ready() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: naming.ContainerPostgres, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return pod
}

func claim(name, request, capacity string) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
	if capacity != "" {
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
		c.Status.Phase = corev1.ClaimBound
	}
	return c
}

func TestNext(t *testing.T) {
	three, one := int32(3), int32(1)
	tests := map[string]struct {
		observed func(*snapshot.Cluster)
		check    func(*testing.T, decide.Plan)
	}{
		"paused: nothing is applied": {
			func(s *snapshot.Cluster) { s.Object.Spec.Paused = true },
			func(t *testing.T, p decide.Plan) {
				if p.Apply || p.Restart != nil {
					t.Error("the plan changes a paused cluster")
				}
			},
		},
		"deleting: nothing is applied": {
			func(s *snapshot.Cluster) { s.Object.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
			func(t *testing.T, p decide.Plan) {
				if p.Apply {
					t.Error("the plan changes a cluster that is being deleted")
				}
			},
		},
		"paused: volumes that shall be kept are let go, and nothing else of them changes": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Paused, s.Object.Spec.Storage = true, "30Gi"
				s.Object.Spec.DeletionPolicy = v1alpha1.DeletionPolicyRetain
				s.Instances[1].Claim.OwnerReferences = []metav1.OwnerReference{{UID: "1", Controller: new(true)}}
			},
			func(t *testing.T, p decide.Plan) {
				if p.Apply || p.Recreate != "" || len(p.Claims) != 1 || p.Claims[0].Ordinal != 1 || p.Claims[0].Owned ||
					p.Claims[0].Size.String() != "20Gi" || p.Claims[0].SystemID != "42" {
					t.Errorf("apply %v, recreate %q, claims %+v", p.Apply, p.Recreate, p.Claims)
				}
			},
		},
		"invalid, even by its storage: the same": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Storage, s.Object.Spec.DeletionPolicy = "much", v1alpha1.DeletionPolicyDelete
				s.Invalid = field.ErrorList{field.Invalid(field.NewPath("spec", "storage"), "much", "is no size")}
			},
			func(t *testing.T, p decide.Plan) {
				if p.Apply || len(p.Claims) != 2 || !p.Claims[0].Owned || p.Claims[0].Size.String() != "20Gi" {
					t.Errorf("apply %v, claims %+v", p.Apply, p.Claims)
				}
			},
		},
		"deleting: volumes stay as they are": {
			func(s *snapshot.Cluster) {
				s.Object.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				s.Object.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete
			},
			func(t *testing.T, p decide.Plan) {
				if len(p.Claims) != 0 {
					t.Errorf("claims %+v", p.Claims)
				}
			},
		},
		"a pod that was made while somebody had changed the StatefulSet's image": {
			func(s *snapshot.Cluster) {
				s.StatefulSet.Status.UpdateRevision = "present"
				for i := range s.Instances {
					pod := s.Instances[i].Pod
					pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
					pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "earlier"}
					pod.Spec.Containers = []corev1.Container{{Name: "postgres", Image: []string{"mine:1", "evil:1"}[i]}}
				}
			},
			func(t *testing.T, p decide.Plan) {
				if p.Restart == nil || p.Restart.Instance != "db-1" || len(p.Steps) != 1 {
					t.Errorf("restart %v, steps %v", p.Restart, p.Steps)
				}
			},
		},
		"the primary is not scaled away": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Replicas = &one
				s.Instances[0].Report.Role, s.Instances[1].Report.Role = contract.RoleReplica, contract.RolePrimary
				s.Instances[0].Report.State = contract.StateNotStreaming
			},
			func(t *testing.T, p decide.Plan) {
				if p.Replicas != 2 || p.HandOver != nil || len(p.Blocks) != 1 || p.Blocks[0].Reason != v1alpha1.ReasonScaleDownBlocked ||
					!strings.Contains(p.Blocks[0].Message, "db-0 does not stream") || !strings.Contains(p.Blocks[0].Message, "set spec.replicas to 2") {
					t.Errorf("replicas %d, blocks %v", p.Replicas, p.Blocks)
				}
			},
		},
		"nor while the StatefulSet is away": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Replicas, s.StatefulSet = &one, nil
				s.Instances[0].Report.Role, s.Instances[1].Report.Role = contract.RoleReplica, contract.RolePrimary
			},
			func(t *testing.T, p decide.Plan) {
				if p.Replicas != 2 {
					t.Errorf("replicas %d", p.Replicas)
				}
			},
		},
		"no scale-down while two say that they are the primary": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Replicas = &one
				s.Instances[1].Report.Role = contract.RolePrimary
			},
			func(t *testing.T, p decide.Plan) {
				if p.Replicas != 2 || len(p.Blocks) != 0 {
					t.Errorf("replicas %d, blocks %v", p.Replicas, p.Blocks)
				}
			},
		},
		"no data, no primary to be kept": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Replicas = &one
				s.Instances[0].Report, s.Instances[1].Report = nil, nil
			},
			func(t *testing.T, p decide.Plan) {
				if p.Replicas != 1 || len(p.Blocks) != 0 {
					t.Errorf("replicas %d, blocks %v", p.Replicas, p.Blocks)
				}
			},
		},
		"data of another major version keeps its image": {
			func(s *snapshot.Cluster) { s.Object.Spec.Version = "18" },
			func(t *testing.T, p decide.Plan) {
				if p.Version != "17" || p.Image != "postgres:17" || p.Blocks[0].Reason != v1alpha1.ReasonMajorUpgradePending {
					t.Errorf("version %s, image %s, blocks %v", p.Version, p.Image, p.Blocks)
				}
			},
		},
		"and the user's own live image": {
			func(s *snapshot.Cluster) { s.Object.Spec.Version, s.Object.Spec.Image = "18", "mine:2" },
			func(t *testing.T, p decide.Plan) {
				if p.Version != "17" || p.Image != "mine:1" {
					t.Errorf("version %s, image %s", p.Version, p.Image)
				}
			},
		},
		"as it was rendered, not as a policy has made it": {
			func(s *snapshot.Cluster) {
				s.Object.Spec.Version, s.Object.Spec.Image = "18", "mine:2"
				s.StatefulSet.Annotations = map[string]string{naming.AnnotationImage: "mine:0"}
			},
			func(t *testing.T, p decide.Plan) {
				if p.Image != "mine:0" {
					t.Errorf("image %s", p.Image)
				}
			},
		},
		"growth: claims first, then the StatefulSet anew": {
			func(s *snapshot.Cluster) { s.Object.Spec.Storage = "30Gi" },
			func(t *testing.T, p decide.Plan) {
				if p.Recreate != "set" || p.TemplateStorage.String() != "30Gi" || p.Claims[1].Size.String() != "30Gi" {
					t.Errorf("recreate %q, template %s, claims %v", p.Recreate, p.TemplateStorage.String(), p.Claims)
				}
			},
		},
		"a smaller size never reaches a volume": {
			func(s *snapshot.Cluster) { s.Object.Spec.Storage = "10Gi" },
			func(t *testing.T, p decide.Plan) {
				if p.Recreate != "" || p.TemplateStorage.String() != "20Gi" || p.Claims[0].Size.String() != "20Gi" {
					t.Errorf("recreate %q, template %s, claims %v", p.Recreate, p.TemplateStorage.String(), p.Claims)
				}
			},
		},
		"nor a template made anew": {
			func(s *snapshot.Cluster) { s.Object.Spec.Storage, s.StatefulSet = "10Gi", nil },
			func(t *testing.T, p decide.Plan) {
				if p.TemplateStorage.String() != "20Gi" {
					t.Errorf("template %s", p.TemplateStorage.String())
				}
			},
		},
		"back to what is provisioned after a growth that failed": {
			func(s *snapshot.Cluster) {
				volume := claim("data-db-0", "50Gi", "20Gi")
				s.Instances[0].Claim = &volume
				s.StatefulSet.Spec.VolumeClaimTemplates[0] = claim("data", "50Gi", "")
			},
			func(t *testing.T, p decide.Plan) {
				if p.Recreate != "" || p.Claims[0].Size.String() != "20Gi" || p.TemplateStorage.String() != "50Gi" {
					t.Errorf("recreate %q, template %s, claims %v", p.Recreate, p.TemplateStorage.String(), p.Claims)
				}
			},
		},
		"a kept volume keeps its size and class": {
			func(s *snapshot.Cluster) {
				class := "old"
				volume := claim("data-db-4", "5Gi", "5Gi")
				volume.Spec.StorageClassName = &class
				s.Instances = append(s.Instances, snapshot.Instance{Name: "db-4", Ordinal: 4, Claim: &volume})
			},
			func(t *testing.T, p decide.Plan) {
				kept := p.Claims[2]
				if kept.Ordinal != 4 || kept.Size.String() != "5Gi" || *kept.StorageClassName != "old" || p.TemplateStorage.String() != "20Gi" {
					t.Errorf("claim %+v, template %s", kept, p.TemplateStorage.String())
				}
			},
		},
		"volumes of an earlier cluster tell whose data it is": {
			func(s *snapshot.Cluster) {
				for i := range s.Instances {
					s.Instances[i].Report, s.Instances[i].Pod = nil, nil
				}
				s.Instances[1].Claim.Annotations = map[string]string{
					naming.AnnotationSystemID: "7", naming.AnnotationDataVersion: "16",
				}
			},
			func(t *testing.T, p decide.Plan) {
				if p.SystemID != "7" || p.Version != "16" || p.Claims[0].SystemID != "" || p.Claims[1].SystemID != "7" {
					t.Errorf("system %q, version %q, claims %+v", p.SystemID, p.Version, p.Claims)
				}
			},
		},
		"what is missing is named": {
			func(s *snapshot.Cluster) { s.Object.Spec.Replicas = &three },
			func(t *testing.T, p decide.Plan) {
				if len(p.Steps) == 0 || p.Steps[0].Instance != "db-2" || p.Steps[0].Action != decide.ActionCreate || p.RequeueAfter == 0 {
					t.Errorf("steps %v", p.Steps)
				}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.check(t, decide.Next(observed(test.observed), config, time.Unix(0, 0)))
		})
	}
}

// TestNamesThatAreTaken: pods of an earlier StatefulSet are waited for, but not those that never go.
func TestNamesThatAreTaken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		due      time.Duration
		withheld bool
	}{
		"it may take a minute":                   {time.Minute, true},
		"it should have gone just now":           {-time.Second, true},
		"its node is lost and it stays for ever": {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			due := metav1.NewTime(now.Add(test.due))
			plan := decide.Next(observed(func(s *snapshot.Cluster) {
				s.StatefulSet, s.Instances = nil, nil
				s.Leaving = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "db-1", DeletionTimestamp: &due}}}
			}), decide.Config{}, now)
			if plan.Withheld != test.withheld {
				t.Errorf("the StatefulSet waits: %v, want %v", plan.Withheld, test.withheld)
			}
			if again := plan.RequeueAfter; test.withheld && (again == 0 || now.Add(again).After(due.Add(10*time.Second))) {
				t.Errorf("looks again after %s", again)
			}
			for _, step := range plan.Steps {
				if waits := strings.Contains(step.Reason, "still being removed"); waits != (test.withheld && step.Instance == "db-1") {
					t.Errorf("step %+v", step)
				}
			}
		})
	}
}
