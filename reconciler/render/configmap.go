package render

import (
	"encoding/json"
	"fmt"
	"time"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// configMap tells the agents what they must know and do.
func configMap(s *snapshot.Cluster, plan decide.Plan) (*corev1ac.ConfigMapApplyConfiguration, error) {
	spec := &s.Object.Spec
	config := contract.Config{
		Cluster: s.Object.Name, Namespace: s.Object.Namespace,
		Version:              plan.Version,
		SystemID:             plan.SystemID,
		LeaseDurationSeconds: int32(plan.LeaseDuration / time.Second), //nolint:gosec // Seconds of a lease fit.
		FailoverEnabled:      spec.FailoverEnabled(),
		SuspicionMillis:      int32(spec.Suspicion() / time.Millisecond), //nolint:gosec // At most 30 seconds.
		MaxLagBytes:          spec.MaxLag(),
		Parameters:           plan.Parameters,
		HBA:                  plan.HBA,
		SettingsHash:         plan.SettingsHash,
		Orders:               plan.Orders,
	}
	if number := spec.SynchronousNumber(); number > 0 {
		config.Synchronous = &contract.Synchronous{Number: number, Required: spec.SynchronousRequired()}
	}
	for ordinal := range plan.Members {
		config.Members = append(config.Members, names(s).Instance(ordinal))
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the agents' configuration: %w", err)
	}
	return corev1ac.ConfigMap(names(s).ConfigMap(), s.Object.Namespace).
		WithLabels(labels(s)).
		WithOwnerReferences(owner(s)).
		WithData(map[string]string{naming.ConfigMapKey: string(data) + "\n"}), nil
}
