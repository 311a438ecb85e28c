package apply

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// settings identifies everything of an object but its status, so that a kind's frequent status writes cause no apply:
// the API server counts changes of the rest in metadata.generation. It is empty for kinds that have none.
func settings(object metav1.Object) string {
	if object.GetGeneration() == 0 {
		return ""
	}
	hash := fnv.New64a()
	_ = json.NewEncoder(hash).Encode([]any{object.GetLabels(), object.GetAnnotations(), object.GetOwnerReferences()})
	return fmt.Sprintf("%d-%x", object.GetGeneration(), hash.Sum64())
}

// contains says that a live object, when the cache holds all of it, has every value of an intent.
func contains(live metav1.Object, body []byte) bool {
	if _, metadataOnly := live.(*metav1.PartialObjectMetadata); metadataOnly {
		return false
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false
	}
	var want map[string]any
	if err := json.Unmarshal(body, &want); err != nil {
		return false
	}
	// The cache strips the type of its objects.
	delete(want, "kind")
	delete(want, "apiVersion")
	return subset(want, have)
}

func subset(want, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !subset(value, have[key]) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		return ok && slices.EqualFunc(want, have, subset)
	case float64:
		number, ok := have.(int64)
		return ok && float64(number) == want
	default:
		return reflect.DeepEqual(want, have)
	}
}
