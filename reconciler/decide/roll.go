package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// roll brings the instances to the StatefulSet's template and to settings that need a restart: one instance at a
// time, replicas first, the primary last and only when all others take part.
func (p *Plan) roll(s *snapshot.Cluster) {
	if p.Recreate != "" || !s.StatefulSetObserved() || s.StatefulSet.DeletionTimestamp != nil {
		return
	}
	wanted := s.StatefulSet.Spec.Template.Annotations[naming.AnnotationTemplateHash]
	order := rollOrder(s)
	disrupted := false
	for _, instance := range order {
		reason, restartPod := p.outdated(s, instance, wanted)
		if reason == "" {
			continue
		}
		action := ActionRestart
		if disrupted || !mayRestart(s, instance, wanted) {
			action = ActionWait
			reason += "; one instance at a time, the primary last"
		}
		p.step(instance.Name, action, reason)
		if action == ActionWait {
			continue
		}
		disrupted = true
		if restartPod {
			p.Restart = &Restart{Instance: instance.Name, UID: instance.Pod.UID, Reason: reason}
			continue
		}
		p.Orders = append(p.Orders, contract.Order{
			ID: orderID(instance, p.SettingsHash), Instance: instance.Name, Kind: contract.OrderRestart,
		})
	}
}

// Template tells the plan the hash of the pod template that it renders to. While the StatefulSet has another one, no pod is
// restarted for that: it would be made from a template that is about to change, or that somebody has forged.
func (p *Plan) Template(s *snapshot.Cluster, hash string) {
	p.TemplateHash = hash
	if s.StatefulSet != nil && s.StatefulSet.Spec.Template.Annotations[naming.AnnotationTemplateHash] != hash {
		p.Restart = nil
	}
}

// rollOrder is the order in which instances are restarted: those that do not serve, other replicas from the highest
// ordinal, the primary.
func rollOrder(s *snapshot.Cluster) []snapshot.Instance {
	var order []snapshot.Instance
	primary, known := s.Primary()
	for _, instance := range slices.Backward(s.Instances) {
		if instance.Pod != nil && (!known || instance.Name != primary.Name) {
			order = append(order, instance)
		}
	}
	slices.SortStableFunc(order, func(a, b snapshot.Instance) int {
		switch {
		case a.Ready() == b.Ready():
			return 0
		case a.Ready():
			return 1
		default:
			return -1
		}
	})
	if known {
		order = append(order, primary)
	}
	return order
}

// outdated says why an instance must restart, and whether its pod must (or PostgreSQL only); an empty reason when not.
func (p *Plan) outdated(s *snapshot.Cluster, instance snapshot.Instance, wanted string) (reason string, pod bool) {
	if instance.Terminating() {
		return "", false
	}
	if instance.TemplateHash() != wanted {
		return "its pod was made from an older template", true
	}
	if s.Altered(instance) {
		return "its pod was made while somebody had changed the StatefulSet's image", true
	}
	report := instance.Report
	if report == nil || len(report.PendingRestart) == 0 || report.SettingsHash != p.SettingsHash ||
		report.LastOrder == orderID(instance, p.SettingsHash) {
		return "", false
	}
	names := slices.Sorted(slices.Values(report.PendingRestart))
	return fmt.Sprintf("settings wait for a restart: %s", strings.Join(names, ", ")), false
}

// mayRestart says whether an instance may be disrupted now.
func mayRestart(s *snapshot.Cluster, instance snapshot.Instance, wanted string) bool {
	primary, known := s.Primary()
	isPrimary := known && primary.Name == instance.Name
	if !instance.Ready() && (!isPrimary || !instance.Running() || instance.Failed()) {
		return !anyTerminating(s) // It takes no part, so nothing is lost; but one at a time.
	}
	for _, other := range s.Instances {
		if other.Name == instance.Name || other.Pod == nil {
			continue
		}
		if other.Ready() {
			continue
		}
		// A primary that does not serve is what the others may be waiting for.
		if isPrimary && !instance.Ready() && other.TemplateHash() == wanted && !other.Terminating() {
			continue
		}
		return false
	}
	return allPresent(s)
}

func anyTerminating(s *snapshot.Cluster) bool {
	return slices.ContainsFunc(s.Instances, snapshot.Instance.Terminating)
}

// allPresent says that every pod the StatefulSet wants exists.
func allPresent(s *snapshot.Cluster) bool {
	pods := int32(0)
	for _, instance := range s.Instances {
		if instance.Pod != nil {
			pods++
		}
	}
	return s.StatefulSet.Spec.Replicas == nil || pods >= *s.StatefulSet.Spec.Replicas
}

// orderID is the same for the same cause: an order is given once for each set of settings.
func orderID(instance snapshot.Instance, settingsHash string) string {
	return "restart-" + instance.Name + "-" + settingsHash
}
