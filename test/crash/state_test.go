package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/world"
)

// objects are all that a cluster may have, itself first.
func objects(ctx context.Context, namespace string) ([]client.Object, error) {
	found, err := world.Objects(ctx, plane.Client, namespace, &v1alpha1.PostgresClusterList{}, &corev1.PodList{})
	if err != nil {
		return nil, err
	}
	children, err := world.Children(ctx, plane.Client, namespace)
	return append(found, children...), err
}

// identities are the UIDs of pods and Secrets by which a state tells those that were kept from those made anew.
type identities map[types.UID]bool

func identify(all []client.Object) identities {
	kept := identities{}
	for _, object := range all {
		kept[object.GetUID()] = true
	}
	return kept
}

// state is everything about a cluster's objects that does not depend on chance or on the time: all of the spec, labels,
// annotations, owners, and the fields that the operator owns.
func state(namespace string, all []client.Object, before identities) (string, error) {
	names := map[string]string{}
	for _, object := range all {
		names[string(object.GetUID())] = fmt.Sprintf("uid of %s %s", kindOf(object), object.GetName())
	}
	var texts []string
	for _, object := range all {
		text, err := normalised(object)
		if err != nil {
			return "", err
		}
		origin := ""
		switch kindOf(object) {
		case "Pod", "Secret", "PersistentVolumeClaim", "Lease":
			origin = map[bool]string{true: ", kept", false: ", new"}[before[object.GetUID()]]
		}
		texts = append(texts, fmt.Sprintf("# %s %s%s\n%s", kindOf(object), object.GetName(), origin, text))
	}
	slices.Sort(texts)
	text := strings.ReplaceAll(strings.Join(texts, "\n"), namespace, "NAMESPACE")
	text = uid.ReplaceAllStringFunc(text, func(found string) string {
		if name := names[found]; name != "" {
			return name
		}
		return "uid of nothing" // The owner of an orphan.
	})
	return moment.ReplaceAllString(text, "TIME"), nil
}

var (
	uid    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	moment = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)
)

func kindOf(object client.Object) string {
	name := fmt.Sprintf("%T", object)
	return name[strings.LastIndex(name, ".")+1:]
}

func normalised(object client.Object) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", err
	}
	owned, err := ownedFields(object)
	if err != nil {
		return "", err
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	switch kindOf(object) {
	case "PostgresCluster":
		// What was taken back is told once, and lost with an operator that dies before it tells.
		unstructured.RemoveNestedField(content, "status", "conflicts")
		unstructured.RemoveNestedField(owned, "Apply status", "f:status", "f:conflicts")
	case "Secret":
		keys := []string{}
		for key := range object.(*corev1.Secret).Data {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		content["data"] = keys // Passwords are random.
	case "Service":
		for _, field := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(content, "spec", field)
		}
	case "PersistentVolumeClaim":
		unstructured.RemoveNestedField(content, "spec", "volumeName")
	}
	if kindOf(object) != "PostgresCluster" {
		unstructured.RemoveNestedField(content, "status")
	}
	content["owned"] = owned
	text, err := yaml.Marshal(content)
	return string(text), err
}

// ownedFields are what the operator owns of an object, by how it came to it.
func ownedFields(object client.Object) (map[string]any, error) {
	owned := map[string]any{}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != naming.FieldManager {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil, err
		}
		owned[strings.TrimSpace(string(entry.Operation)+" "+entry.Subresource)] = fields
	}
	return owned, nil
}

// difference lists the lines that only one of two states has, below the objects that they are of.
func difference(got, want string) string {
	in := func(text string) map[string]bool {
		lines, heading := map[string]bool{}, ""
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "# ") {
				heading = strings.TrimSpace(line)
			}
			lines[heading+": "+strings.TrimRight(line, "\n")] = true
		}
		return lines
	}
	var different []string
	have, wanted := in(got), in(want)
	for line := range have {
		if !wanted[line] {
			different = append(different, "+ "+line)
		}
	}
	for line := range wanted {
		if !have[line] {
			different = append(different, "- "+line)
		}
	}
	slices.SortFunc(different, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	if len(different) > 40 {
		different = append(different[:40], "...")
	}
	return strings.Join(different, "\n")
}
