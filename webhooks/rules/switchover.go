package rules

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// maxSwitchover is the longest request for another primary, in bytes.
const maxSwitchover = 128

var switchoverPath = field.NewPath("metadata", "annotations").Key(naming.AnnotationSwitchover)

// asked is a request for another primary that was not there before; empty for none.
func asked(old, cluster *v1alpha1.PostgresCluster) string {
	request := cluster.Annotations[naming.AnnotationSwitchover]
	if old != nil && old.Annotations[naming.AnnotationSwitchover] == request {
		return ""
	}
	return request
}

// validateSwitchover judges a new request for another primary.
func validateSwitchover(old, cluster *v1alpha1.PostgresCluster) field.ErrorList {
	request := asked(old, cluster)
	if request == "" {
		return nil
	}
	if len(request) > maxSwitchover {
		return field.ErrorList{field.TooLong(switchoverPath, request, maxSwitchover)}
	}
	target, _, _ := strings.Cut(request, naming.SwitchoverMark)
	if target == naming.SwitchoverAny || cluster.Name == "" {
		return nil
	}
	names := []string{naming.SwitchoverAny}
	for ordinal := range min(replicasOf(&cluster.Spec), maxReplicas) {
		name := naming.Cluster(cluster.Name).Instance(ordinal)
		if name == target {
			return nil
		}
		names = append(names, name)
	}
	return field.ErrorList{field.Invalid(switchoverPath, request, fmt.Sprintf("names no instance: use one of %s; "+
		"add %s and any word to ask for the same again", strings.Join(names, ", "), naming.SwitchoverMark))}
}

// warnSwitchover tells of a new request that nothing will be done about for now.
func warnSwitchover(old, cluster *v1alpha1.PostgresCluster) []string {
	switch {
	case asked(old, cluster) == "":
		return nil
	case replicasOf(&cluster.Spec) == 1:
		return []string{switchoverPath.String() + ": there is no other instance that could be the primary; it waits until there is"}
	case cluster.Spec.Paused:
		return []string{switchoverPath.String() + ": waits while spec.paused is set"}
	case !cluster.Spec.FailoverEnabled():
		return []string{switchoverPath.String() + ": waits while spec.failover.enabled is false"}
	}
	return nil
}
