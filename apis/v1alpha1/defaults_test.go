package v1alpha1

import (
	"reflect"
	"testing"
)

func TestDefault(t *testing.T) {
	defaults := Defaults{Version: "17", Storage: "50Gi"}
	three := int32(3)
	tests := map[string]struct {
		spec          PostgresClusterSpec
		status        PostgresClusterStatus
		version, size string
		replicas      int32
	}{
		"nothing set":      {version: "17", size: "50Gi", replicas: 1},
		"all set":          {spec: PostgresClusterSpec{Replicas: &three, Version: "16", Storage: "1Gi"}, version: "16", size: "1Gi", replicas: 3},
		"running":          {status: PostgresClusterStatus{Version: "15", ProvisionedStorage: "30Gi"}, version: "15", size: "30Gi", replicas: 1},
		"running in Ti":    {status: PostgresClusterStatus{ProvisionedStorage: "2Ti"}, version: "17", size: "2048Gi", replicas: 1},
		"running in bytes": {status: PostgresClusterStatus{ProvisionedStorage: "21474836481"}, version: "17", size: "20Gi", replicas: 1},
		"running on less":  {status: PostgresClusterStatus{ProvisionedStorage: "500Mi"}, version: "17", size: "50Gi", replicas: 1},
		"nonsense":         {status: PostgresClusterStatus{ProvisionedStorage: "lots"}, version: "17", size: "50Gi", replicas: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &PostgresCluster{Spec: test.spec, Status: test.status}
			c.Default(defaults)
			if c.Spec.Version != test.version || c.Spec.Storage != test.size || *c.Spec.Replicas != test.replicas {
				t.Errorf("version %s, storage %s, replicas %d", c.Spec.Version, c.Spec.Storage, *c.Spec.Replicas)
			}
			again := c.DeepCopy()
			again.Default(Defaults{Version: "18", Storage: "99Gi"})
			if !reflect.DeepEqual(c, again) {
				t.Errorf("defaulted twice: %+v, then %+v", c.Spec, again.Spec)
			}
		})
	}
}
