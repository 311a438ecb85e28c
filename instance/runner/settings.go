package runner

import (
	"slices"
	"strings"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
)

// application identifies what a server is configured with.
type application struct {
	// hash of the operator's settings.
	hash string
	// upstream is where a replica streams from.
	upstream agent.Endpoint
	// synchronous is what commits wait for, or would on a primary.
	synchronous string
	// serial of the server's certificate, keys a count of changed keys.
	serial string
	keys   int
}

// settings are what is known of the configuration in force.
type settings struct {
	// detached: what PostgreSQL reads last keeps it from following applied.upstream.
	detached bool
	// applied is what was last written, inForce the hash of the settings PostgreSQL runs with.
	applied application
	inForce string
	// try is which settings to start with: the operator's, the last good ones, or the defaults.
	try settingsTry
	// tried is the hash that try belongs to.
	tried string
	// refused were left out of the files, rejected PostgreSQL did not take; failure is why it did not start.
	refused, rejected []string
	failure           string
	// hba are the lines of pg_hba.conf that PostgreSQL was started with; refusedHBA says why those are not the operator's.
	hba, refusedHBA []string
	// pending wait for a restart.
	pending []string
	// serial and keys of the certificates that were last read.
	serial string
	keys   int
}

type settingsTry int

const (
	tryWanted settingsTry = iota
	tryGood
	tryDefaults
)

func (s settings) errors() []string {
	all := slices.Concat(s.refused, s.rejected, s.refusedHBA)
	if s.failure != "" {
		all = append(all, s.failure)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wanted is what the server should be configured with. The caller holds mu.
func (r *Runner) wanted() application {
	return application{
		hash: r.facts.Config.SettingsHash, upstream: r.upstreamEndpoint(), synchronous: standbyNames(r.quorum), serial: r.settings.serial, keys: r.settings.keys,
	}
}

// upstreamEndpoint is where the instance should stream from. While the Services lead nowhere, or to somebody else,
// it is asked for by name. The caller holds mu.
func (r *Runner) upstreamEndpoint() agent.Endpoint {
	follow := r.decision.Follow
	switch {
	case follow == "":
		return agent.Endpoint{}
	case r.found(follow):
		return r.settings.applied.upstream
	case r.facts.Primary.Instance == follow:
		return r.facts.Primary
	case r.settings.applied.upstream.Instance == follow:
		return r.settings.applied.upstream
	}
	return agent.Endpoint{Instance: follow, Port: r.options.Port}
}

// found tells whether the instance streams from the primary that it asked for by name. To give it the address now would
// have it connect again, which a primary that is just being stopped does not let it. The caller holds mu.
func (r *Runner) found(primary string) bool {
	applied := r.settings.applied.upstream
	return r.facts.Server.Streaming && applied.Instance == primary && applied.Address == ""
}

// upstream is how to connect to an endpoint.
func (r *Runner) upstream(e agent.Endpoint) pg.Upstream {
	ordinal, _ := r.options.Cluster.Ordinal(r.options.Instance)
	return pg.Upstream{
		Host:    r.options.Cluster.InstanceHost(e.Instance, r.options.Namespace),
		Address: e.Address, Port: e.Port, Keys: r.options.ClientTLS,
		Application: r.options.Instance, Slot: pg.SlotName(ordinal),
	}
}

// slots are those that a primary has for the other members. The caller holds mu.
func (r *Runner) slots() []string {
	slots := []string{}
	for _, member := range r.facts.Config.Members {
		if slot := r.slotOf(member); slot != "" && member != r.options.Instance {
			slots = append(slots, slot)
		}
	}
	return slots
}

// configuration is what to write for a server that follows an endpoint, or nobody. The caller holds mu.
func (r *Runner) configuration(upstream agent.Endpoint) (c pg.Configuration, inForce string) {
	config := r.facts.Config
	if r.settings.tried != config.SettingsHash {
		r.settings.try, r.settings.tried, r.settings.failure = tryWanted, config.SettingsHash, ""
		r.settings.refusedHBA = nil
	}
	c, inForce = r.candidate(config)
	if c.HBA = config.HBA; len(r.settings.refusedHBA) > 0 {
		c.HBA = r.goodHBA()
	}
	c.Synchronous = standbyNames(r.quorum)
	if upstream.Instance != "" {
		u := r.upstream(upstream)
		c.Upstream = &u
	}
	return c, inForce
}

func (r *Runner) candidate(config *contract.Config) (pg.Configuration, string) {
	good := r.memory.Good
	switch {
	case r.settings.try == tryGood && good != nil:
		return pg.Configuration{Parameters: good.Parameters}, good.Hash
	case r.settings.try != tryWanted:
		return pg.Configuration{Parameters: postgres.Settings(config.Version, nil)}, ""
	}
	return pg.Configuration{Parameters: config.Parameters}, config.SettingsHash
}

// goodHBA are lines of pg_hba.conf that PostgreSQL takes: those it last did, or none of the user's. Then nobody gets in
// but the agents, because whom the user's lines were to keep out is not known. The caller holds mu.
func (r *Runner) goodHBA() []string {
	if r.memory.HBA != nil {
		return r.memory.HBA
	}
	return postgres.ClosedHBA()
}

// hbaTaken notes that PostgreSQL took the operator's lines of pg_hba.conf. The caller holds mu.
func (r *Runner) hbaTaken(lines []string) {
	if !slices.Equal(r.memory.HBA, lines) {
		r.memory.HBA = slices.Clone(lines)
		r.remember()
	}
}

// configured notes what came of a configuration that PostgreSQL has reloaded. The caller holds mu.
func (r *Runner) configured(wanted application, inForce string, refused []string, result pg.InForce) {
	r.settings.applied, r.settings.inForce, r.settings.refused = wanted, inForce, refused
	r.settings.pending, r.settings.rejected = result.PendingRestart, result.Refused
}

// settingsGood notes that PostgreSQL started with its settings. The caller holds mu.
func (r *Runner) settingsGood() {
	config := r.facts.Config
	if r.settings.try != tryWanted || r.settings.inForce != config.SettingsHash ||
		r.memory.Good != nil && r.memory.Good.Hash == config.SettingsHash {
		return
	}
	r.memory.Good = &goodSettings{Parameters: config.Parameters, Hash: config.SettingsHash}
	r.remember()
}

// settingsFailed chooses other settings after PostgreSQL did not start, if those it had are not known to be good. It
// tells whether there is something else to try. The caller holds mu.
func (r *Runner) settingsFailed(ending string) bool {
	if strings.Contains(ending, pg.HBAFile) && len(r.settings.refusedHBA) == 0 {
		r.settings.refusedHBA = []string{"PostgreSQL did not start with the lines of spec.hba: " + ending}
		return true
	}
	good := r.memory.Good
	if r.settings.try == tryDefaults || good != nil && good.Hash == r.settings.inForce {
		// Something else keeps it from starting: the spec's settings are not to blame, and are the next to be tried.
		r.settings.try, r.settings.failure = tryWanted, ""
		return false
	}
	if r.settings.try == tryWanted {
		r.settings.failure = "PostgreSQL did not start with the settings of the spec: " + ending
	}
	r.settings.try++
	if r.settings.try == tryGood && good == nil {
		r.settings.try = tryDefaults
	}
	return true
}
