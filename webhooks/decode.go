package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// decode reads an object the way the API server does: field names are case-sensitive, unknown ones are ignored.
func decode(raw []byte) (*v1alpha1.PostgresCluster, error) {
	var cluster *v1alpha1.PostgresCluster
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &cluster); err != nil {
		return nil, fmt.Errorf("decode PostgresCluster: %w", err)
	}
	if cluster == nil {
		return nil, errors.New("decode PostgresCluster: null is not an object")
	}
	return cluster, nil
}

// hasSpec tells whether an object has a spec to which fields can be added.
func hasSpec(raw []byte) bool {
	var object struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) == nil && object.Spec != nil
}
