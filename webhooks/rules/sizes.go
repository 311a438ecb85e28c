package rules

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSettings is how many bytes settings and lines of pg_hba.conf may take as JSON: they go to the agents in one ConfigMap,
// which holds 1 MiB; 64 KiB of it are for the rest.
const maxSettings = 1<<20 - 64<<10

func validateSettingsSize(s *spec, path *field.Path) field.ErrorList {
	text, err := json.Marshal([]any{s.Parameters, s.HBA})
	if err == nil && len(text) <= maxSettings {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("parameters"), field.OmitValueType{}, fmt.Sprintf(
		"takes %d bytes together with spec.hba; at most %d are accepted, because instances read them from one ConfigMap",
		len(text), maxSettings))}
}

// atMost bounds a list or a map, as the schema does.
func atMost(name string, limit int, size func(*spec) int) func(*spec, *field.Path) field.ErrorList {
	return func(s *spec, path *field.Path) field.ErrorList {
		if n := size(s); n > limit {
			return field.ErrorList{field.TooMany(path.Child(name), n, limit)}
		}
		return nil
	}
}
