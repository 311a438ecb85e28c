package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// asked is what the spec asks of every instance. An instance is what the spec says when none of down, outdated and
// small has an objection: nothing else makes Ready True.
type asked struct {
	// template and settings are the hashes of what the spec renders to now, whatever is stored.
	template, settings string
	// version of PostgreSQL, and the identifier of the data.
	version, systemID string
	// size of the volume; nil when the spec's is no quantity.
	size *resource.Quantity
	// primary is the name of the one instance that may take writes; empty when it is not known.
	primary string
	// altered says that a pod was made from a StatefulSet that somebody had changed.
	altered func(snapshot.Instance) bool
}

func ask(s *snapshot.Cluster, plan decide.Plan) asked {
	a := asked{
		template: plan.TemplateHash, settings: plan.SettingsHash,
		version: s.Object.Spec.Version, systemID: plan.SystemID, altered: s.Altered,
	}
	if size, err := resource.ParseQuantity(s.Object.Spec.Storage); err == nil {
		a.size = &size
	}
	if primary, known := s.Primary(); known {
		a.primary = primary.Name
	}
	return a
}

// lacks says what an instance lacks of what the spec asks; empty when nothing.
func (a *asked) lacks(instance snapshot.Instance) string {
	for _, objection := range []func(snapshot.Instance) string{a.down, a.outdated, a.small} {
		if text := objection(instance); text != "" {
			return text
		}
	}
	return ""
}

// down says why an instance takes no part: both the kubelet and its agent must say that it does.
func (a *asked) down(instance snapshot.Instance) string {
	if instance.Pod == nil {
		return "is missing"
	}
	state := instanceStatus(instance).State
	if !instance.Ready() {
		if state == string(contract.StateRunning) {
			return "is not ready"
		}
		return "is " + inWords(state)
	}
	report := instance.Report
	switch {
	case report == nil:
		return "has not reported"
	case report.State != contract.StateRunning:
		return "is " + inWords(state)
	case a.systemID != "" && report.SystemID != a.systemID:
		return "has the data of another cluster"
	case instance.Name != a.primary && report.Role != contract.RoleReplica:
		return "is no replica"
	case report.LeaseMissing:
		return "does not find the Lease"
	}
	return ""
}

// outdated says in what an instance that runs is of an older spec.
func (a *asked) outdated(instance snapshot.Instance) string {
	if instance.Pod == nil {
		return ""
	}
	report := instance.Report
	switch {
	case instance.TemplateHash() != a.template:
		return "was made from an older template"
	case a.altered(instance):
		return "was made while somebody had changed the StatefulSet"
	case report == nil:
		return "has not reported"
	case report.DataVersion != a.version || !ofMajor(report.ServerVersion, a.version):
		return "runs PostgreSQL " + report.DataVersion
	case report.SettingsHash != a.settings:
		return "has other settings in force"
	case len(report.PendingRestart) > 0:
		return "waits for a restart for " + strings.Join(slices.Sorted(slices.Values(report.PendingRestart)), ", ")
	}
	return ""
}

// ofMajor says that a full version such as "17.5" is of a major one; what is not reported is not doubted.
func ofMajor(full, major string) bool {
	return full == "" || full == major || strings.HasPrefix(full, major) && !isDigit(full[len(major)])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// small says what an instance's volume lacks.
func (a *asked) small(instance snapshot.Instance) string {
	if instance.Claim == nil {
		return "has no volume"
	}
	capacity, known := instance.Capacity()
	switch {
	case instance.Claim.Status.Phase != corev1.ClaimBound || !known:
		return "has a volume that is not bound"
	case a.size != nil && capacity.Cmp(*a.size) < 0:
		return fmt.Sprintf("has %s of %s", capacity.String(), a.size.String())
	}
	return ""
}
