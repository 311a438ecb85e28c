package rules

import "k8s.io/apimachinery/pkg/util/validation/field"

// atMost bounds a list or a map, as the schema does.
func atMost(name string, limit int, size func(*spec) int) func(*spec, *field.Path) field.ErrorList {
	return func(s *spec, path *field.Path) field.ErrorList {
		if n := size(s); n > limit {
			return field.ErrorList{field.TooMany(path.Child(name), n, limit)}
		}
		return nil
	}
}
