package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/postgres"
)

// Warnings tells what is legal and risky in a cluster; with an old state, only what is new in it. One warning has
// about 120 characters, because the API server cuts longer ones when there are many.
func Warnings(old, cluster *v1alpha1.PostgresCluster) []string {
	warnings := warningsOf(&cluster.Spec)
	requested := warnSwitchover(old, cluster)
	if old == nil {
		return append(append(warnings, warnName(cluster.Name)...), requested...)
	}
	known := warningsOf(&old.Spec)
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(known, w) })
	if before, now := old.Spec.Version, cluster.Spec.Version; before != "" && now > before {
		warnings = append(warnings, fmt.Sprintf(
			"spec.version: %s to %s is a major upgrade; it cannot be undone without a backup", before, now))
	}
	warnings = append(warnings, requested...)
	warnings = append(warnings, warnRestarts(&old.Spec, &cluster.Spec)...)
	if cluster.Spec.DeletionProtection && !old.Spec.DeletionProtection && !cluster.DeletionTimestamp.IsZero() {
		warnings = append(warnings, "spec.deletionProtection: comes too late, this PostgresCluster is being deleted already")
	}
	return warnings
}

func warningsOf(s *spec) []string {
	var warnings []string
	for _, w := range []string{
		warnReplicas(s), warnImageTag(s), warnImageVersion(s), warnMemory(s), warnStorageClass(s), warnOneNode(s),
		warnDeletion(s), warnFailover(s), warnKeptLog(s),
	} {
		if w != "" {
			warnings = append(warnings, w)
		}
	}
	warnings = append(warnings, warnSynchronous(s)...)
	return append(warnings, warnHBA(s)...)
}

// warnRestarts names the settings that were set, changed or removed and that a running server does not take. Another
// version or image restarts the instances anyhow.
func warnRestarts(old, s *spec) []string {
	if old.Version != s.Version || old.Image != s.Image {
		return nil
	}
	all := lowerNames(old.Parameters)
	maps.Copy(all, lowerNames(s.Parameters))
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if postgres.NeedsRestart(judgedMajor(s), name) && !sameParameters(old, s, []string{name}) {
			warnings = append(warnings, fmt.Sprintf(
				"spec.parameters[%s]: takes a restart of each instance, replicas first; the primary is away for some seconds", name))
		}
	}
	return warnings
}

// warnName tells of a Service that another cluster would want: the headless one has the cluster's own name.
func warnName(name string) []string {
	for _, service := range []func(naming.Cluster) string{
		naming.Cluster.ServiceReadWrite, naming.Cluster.ServiceReadOnly, naming.Cluster.ServiceRead,
	} {
		if other, found := strings.CutSuffix(name, service("")); found {
			return []string{fmt.Sprintf(
				"metadata.name: a Service of this name is also one of a cluster named %s; only one can have it", other)}
		}
	}
	return nil
}

func warnReplicas(s *spec) string {
	switch {
	case s.Replicas == nil:
		return ""
	case *s.Replicas == 1:
		return "spec.replicas: 1 keeps the data on one volume only, and is away while its node is; use 3 for copies on other nodes"
	case *s.Replicas == 2:
		return "spec.replicas: 2 leaves a single copy after one is lost; use 3"
	default:
		return ""
	}
}

func warnImageTag(s *spec) string {
	tag, digest := imageTag(s.Image)
	if s.Image == "" || digest != "" || tag != "" && tag != "latest" {
		return ""
	}
	return "spec.image: an image without tag, or with latest, can change at any restart; name a version or a digest"
}

var leadingNumber = regexp.MustCompile(`^[0-9]+`)

func warnImageVersion(s *spec) string {
	tag, _ := imageTag(s.Image)
	if major := leadingNumber.FindString(tag); major != "" && s.Version != "" && major != s.Version {
		return fmt.Sprintf("spec.image: tag %s does not look like spec.version %s; an image of another major version does "+
			"not start", tag, s.Version)
	}
	return ""
}

func imageTag(image string) (tag, digest string) {
	match := imageForm.FindStringSubmatch(image)
	if match == nil {
		return "", ""
	}
	return match[imageForm.SubexpIndex("tag")], match[imageForm.SubexpIndex("digest")]
}

var comfortableMemory = resource.MustParse("256Mi")

func warnMemory(s *spec) string {
	if limit, ok := s.Resources.Limits[corev1.ResourceMemory]; ok && limit.Cmp(comfortableMemory) < 0 {
		return fmt.Sprintf("spec.resources.limits[memory]: %s is little for PostgreSQL; below %s expect it to be killed under load",
			limit.String(), comfortableMemory.String())
	}
	return ""
}

func warnStorageClass(s *spec) string {
	if s.StorageClassName != nil && *s.StorageClassName == "" {
		return `spec.storageClassName: "" means volumes that somebody made by hand; leave it out for the default class`
	}
	return ""
}

func warnOneNode(s *spec) string {
	host := s.NodeSelector[corev1.LabelHostname]
	if host == "" || s.Replicas == nil || *s.Replicas < 2 {
		return ""
	}
	return "spec.nodeSelector: " + corev1.LabelHostname + " puts all instances on one node; its loss stops them all"
}

func warnDeletion(s *spec) string {
	if s.DeletionPolicy != v1alpha1.DeletionPolicyDelete {
		return ""
	}
	return "spec.deletionPolicy: Delete removes the volumes, and with them the data, when this PostgresCluster is deleted"
}
