package runner

import (
	"slices"
	"strings"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
)

// report says what the instance is doing. The caller holds mu.
func (r *Runner) report(d agent.Decision) contract.Report {
	f := r.facts
	refused := ""
	if len(r.settings.errors()) > 0 {
		refused = r.settings.tried
	}
	report := contract.Report{
		Incarnation: f.Incarnation, Role: d.Role, State: d.State, Message: d.Message, Term: f.Lease.Term,
		LeaseMissing: f.LeaseMissing,
		SystemID:     f.Data.SystemID, Timeline: int64(f.KnownTimeline()), DataVersion: f.Data.Major,
		ServerVersion: f.Programs.Full, AgentVersion: r.options.AgentVersion,
		SettingsHash: r.settings.inForce, SettingsError: strings.Join(r.settings.errors(), "; "),
		SettingsRefused: refused,
		PendingRestart:  r.settings.pending, CertificateSerial: r.settings.serial, LastOrder: r.memory.LastOrder,
		OrderProblem: r.orderProblem, Synchronous: r.synchronous(),
	}
	waits := r.waits(d)
	report.Waiting, report.WaitingSince = waits.word, waits.since
	if d.Role == contract.RolePrimary && f.Lease.HeldBy() == f.Self {
		report.Named = named(f.Lease)
	}
	if f.Lease.Failover != nil {
		// Who damages the record in the Lease must not have the whole report be ignored.
		if failover := *f.Lease.Failover; failover.WellFormed() {
			report.LastFailover = &failover
		}
	}
	return report
}

// named are all instances that a Lease names, sorted.
func named(l lease.Lease) []string {
	names := slices.Clone(l.Members)
	for _, quorum := range l.Sync.InForce {
		names = append(names, quorum.Standbys...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Status is what the instance answers to its peers.
func (r *Runner) Status() contract.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := contract.Status{Instance: r.facts.Self, Report: r.report(r.decision)}
	switch {
	case !r.facts.Server.Accepting:
	case r.observed.Recovering:
		s.Received, s.Replayed = r.observed.Received.String(), r.observed.Replayed.String()
		s.LagBytes = r.observed.Received.BytesAfter(r.observed.Replayed)
	default:
		s.Written = r.observed.Written.String()
	}
	return s
}
