package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// statefulSet starts all instances at once and never restarts one by itself: the order is ours (decide), the roles
// are the agents'.
func statefulSet(
	s *snapshot.Cluster, plan decide.Plan, config Config,
) (*appsv1ac.StatefulSetApplyConfiguration, error) {
	template, err := podTemplate(s, plan, config)
	if err != nil {
		return nil, err
	}
	volumes, err := json.Marshal(snapshot.Volumes{
		Storage: s.Object.Spec.Storage, StorageClassName: s.Object.Spec.StorageClassName,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the spec of the volumes: %w", err)
	}
	return appsv1ac.StatefulSet(names(s).StatefulSet(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithAnnotations(map[string]string{
			naming.AnnotationGeneration: strconv.FormatInt(s.Object.Generation, 10),
			naming.AnnotationVolumes:    string(volumes),
			naming.AnnotationImage:      plan.Image,
		}).
		WithOwnerReferences(owner(s)).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(plan.Replicas).
			WithServiceName(names(s).ServiceHeadless()).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithPersistentVolumeClaimRetentionPolicy(appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicy().
				WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
				WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
			WithRevisionHistoryLimit(2).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(names(s).SelectorLabels())).
			WithTemplate(template).
			WithVolumeClaimTemplates(volumeClaimTemplate(s, plan))), nil
}

// TemplateHash identifies the pod template, so that a pod made from an older one is known by its annotation, whatever
// admission policies change in the pod itself. The agent's image is not part of it: an upgrade of the operator restarts
// no database, and a pod gets the new agent when it is next made.
func TemplateHash(s *snapshot.Cluster, plan decide.Plan, config Config) (string, error) {
	config.OperatorImage = ""
	data, err := json.Marshal(bareTemplate(s, plan, config))
	if err != nil {
		return "", fmt.Errorf("encoding the pod template: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

func podTemplate(
	s *snapshot.Cluster, plan decide.Plan, config Config,
) (*corev1ac.PodTemplateSpecApplyConfiguration, error) {
	hash, err := TemplateHash(s, plan, config)
	if err != nil {
		return nil, err
	}
	return bareTemplate(s, plan, config).WithAnnotations(map[string]string{naming.AnnotationTemplateHash: hash}), nil
}

func bareTemplate(s *snapshot.Cluster, plan decide.Plan, config Config) *corev1ac.PodTemplateSpecApplyConfiguration {
	return corev1ac.PodTemplateSpec().
		WithLabels(labels(s)).
		WithAnnotations(map[string]string{"kubectl.kubernetes.io/default-container": naming.ContainerPostgres}).
		WithSpec(podSpec(s, plan, config))
}
