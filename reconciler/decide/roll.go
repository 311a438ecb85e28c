package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// roll brings the instances to the StatefulSet's template and to settings that need a restart: one instance at a
// time, replicas first, the primary last and only when all others take part. Before its pod is made anew, a primary hands
// over to a replica.
func (p *Plan) roll(s *snapshot.Cluster, now time.Time) {
	if p.Recreate != "" || !s.StatefulSetObserved() || s.StatefulSet.DeletionTimestamp != nil {
		return
	}
	wanted := liveTemplate(s)
	disrupted := p.moving()
	for _, instance := range rollOrder(s) {
		reason, restartPod := p.outdated(s, instance, wanted)
		if reason == "" {
			continue
		}
		if disrupted || !mayRestart(s, instance, wanted) {
			p.step(instance.Name, ActionWait, reason+"; "+turn(s))
			continue
		}
		disrupted = true
		switch {
		case !restartPod:
			p.step(instance.Name, ActionRestart, reason)
			p.Orders = append(p.Orders, contract.Order{
				ID: restartID(instance, p.SettingsHash), Instance: instance.Name, Kind: contract.OrderRestart,
			})
		default:
			p.renew(s, instance, reason, wanted, now)
		}
	}
}

// turn says what an instance waits for that is to be restarted.
func turn(s *snapshot.Cluster) string {
	if leaderless(s) {
		return "not before an instance is the primary"
	}
	return "one instance at a time, the primary last"
}

// leaderless says that there is a database and no instance is known to be its primary. The next one is being elected, and
// any instance that runs may be needed for that, or be the one with the newest data.
func leaderless(s *snapshot.Cluster) bool {
	_, data := s.SystemID()
	_, known := s.Primary()
	return data && !known && s.LiveReplicas() > 1
}

// renew has the pod of an instance made anew. A primary hands over first, if any replica can take over.
func (p *Plan) renew(s *snapshot.Cluster, instance snapshot.Instance, reason, wanted string, now time.Time) {
	if primary, known := s.Primary(); known && primary.Name == instance.Name {
		over := p.handOver(s, fmt.Sprintf("restart %s with template %s", primary.Name, wanted), p.Replicas, now)
		if p.moving() {
			return
		}
		reason += "; no replica takes over before: " + over.Message
	}
	p.step(instance.Name, ActionRestart, reason)
	p.Restart = &Restart{Instance: instance.Name, UID: instance.Pod.UID, Reason: reason}
}

// liveTemplate is the hash of the template that the StatefulSet makes pods from.
func liveTemplate(s *snapshot.Cluster) string {
	if s.StatefulSet == nil {
		return ""
	}
	return s.StatefulSet.Spec.Template.Annotations[naming.AnnotationTemplateHash]
}

// Template tells the plan the hash of the pod template that it renders to. While the StatefulSet has another one, no pod is
// restarted for that: it would be made from a template that is about to change, or that somebody has forged.
func (p *Plan) Template(s *snapshot.Cluster, hash string) {
	p.TemplateHash = hash
	if s.StatefulSet == nil || liveTemplate(s) == hash {
		return
	}
	p.Restart = nil
	if stored := s.Object.Status.HandOver; running(p.HandOver) && !running(stored) {
		p.HandOver = stored.DeepCopy() // It was to begin in this pass.
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
		report.LastOrder == restartID(instance, p.SettingsHash) {
		return "", false
	}
	names := slices.Sorted(slices.Values(report.PendingRestart))
	return fmt.Sprintf("settings wait for a restart: %s", strings.Join(names, ", ")), false
}

// mayRestart says whether an instance may be disrupted now.
func mayRestart(s *snapshot.Cluster, instance snapshot.Instance, wanted string) bool {
	primary, known := s.Primary()
	isPrimary := known && primary.Name == instance.Name
	if leaderless(s) && instance.Running() && !instance.Failed() {
		return false
	}
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

// restartID is the same for the same cause: an order is given once for each set of settings.
func restartID(instance snapshot.Instance, settingsHash string) string {
	return "restart-" + instance.Name + "-" + settingsHash
}
