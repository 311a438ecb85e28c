package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/acme/pg-operator/postgres"
)

// Configuration is what a server is to run with.
type Configuration struct {
	// Parameters and HBA as the operator renders them.
	Parameters map[string]string
	HBA        []string
	// Upstream to follow; nil on a primary.
	Upstream *Upstream
	// Synchronous is the setting synchronous_standby_names, which replicas have for the day on which they lead.
	Synchronous string
}

// Configure writes the configuration files but that of Override. Settings that PostgreSQL would refuse are left out, so that they do not
// stop the others or the start; refused says which and why.
func (s Server) Configure(ctx context.Context, c Configuration) (refused []string, err error) {
	osUser, err := OSUser()
	if err != nil {
		return nil, err
	}
	data := s.Volume.PGData()
	for name, content := range map[string]string{
		HBAFile:         postgres.RenderHBA(c.HBA),
		"pg_ident.conf": postgres.RenderIdent(osUser),
	} {
		if err = WriteFile(filepath.Join(data, name), []byte(content)); err != nil {
			return nil, err
		}
	}
	settings := maps.Clone(c.Parameters)
	if c.Upstream != nil {
		if err = s.raiseToPrimary(ctx, settings); err != nil {
			return nil, err
		}
	}
	candidate := filepath.Join(data, "postgresql.conf.candidate")
	if refused, err = s.writeAcceptable(ctx, candidate, settings, s.ownSettings(c)); err != nil {
		return nil, err
	}
	slices.Sort(refused)
	content, err := os.ReadFile(candidate)
	if err != nil {
		return nil, err
	}
	return refused, errors.Join(WriteFile(filepath.Join(data, "postgresql.conf"), content), os.Remove(candidate))
}

// writeAcceptable writes a configuration file, and takes settings that PostgreSQL refuses out of it until it accepts the
// rest. Each round takes out at least one, so it ends.
func (s Server) writeAcceptable(ctx context.Context, path string, settings, own map[string]string) (refused []string, err error) {
	for {
		all := maps.Clone(settings)
		maps.Copy(all, own)
		if err = os.WriteFile(path, []byte(postgres.RenderConf(all)), 0o600); err != nil {
			return nil, err
		}
		var wrong map[string]string
		if wrong, err = s.tryConf(ctx, path); err != nil || len(wrong) == 0 {
			return refused, err
		}
		before := len(settings)
		for name, why := range wrong {
			if _, ours := own[name]; ours {
				return nil, fmt.Errorf("PostgreSQL refuses a setting of the agent's own: %s", why)
			}
			if _, there := settings[name]; there {
				delete(settings, name)
				refused = append(refused, why)
			}
		}
		if len(settings) == before {
			return nil, fmt.Errorf("PostgreSQL refuses its configuration: %s", strings.Join(slices.Sorted(maps.Values(wrong)), "; "))
		}
	}
}

// ownSettings are those that only the agent knows. They win over all others.
func (s Server) ownSettings(c Configuration) map[string]string {
	own := map[string]string{
		"port":                    fmt.Sprint(s.Port),
		"listen_addresses":        s.Listen,
		"unix_socket_directories": s.RunDir,
		"cluster_name":            s.Instance,
		"ssl_cert_file":           s.TLS.Certificate(),
		"ssl_key_file":            s.TLS.Key(),
		"ssl_ca_file":             s.TLS.Authority(),
	}
	if c.Synchronous != "" {
		own["synchronous_standby_names"] = c.Synchronous
	}
	if c.Upstream != nil {
		own["primary_conninfo"] = c.Upstream.conninfo("")
		own["primary_slot_name"] = c.Upstream.Slot
	}
	return own
}

// raiseToPrimary raises the settings that a replica must not have lower than its primary, which it was last told by
// the log. A replica that is restarted before its primary, to lower one of them, would not start otherwise.
func (s Server) raiseToPrimary(ctx context.Context, settings map[string]string) error {
	control, err := s.Volume.ControlData(ctx, s.Programs)
	if err != nil {
		return err
	}
	for name, least := range control.ReplicaLeast {
		n, err := strconv.Atoi(settings[name])
		if least > defaultLimits[name] && settings[name] == "" || err == nil && n < least {
			settings[name] = strconv.Itoa(least)
		}
	}
	return nil
}

// defaultLimits are PostgreSQL's defaults of those settings.
var defaultLimits = map[string]int{
	"max_connections": 100, "max_worker_processes": 8, "max_wal_senders": 10,
	"max_prepared_transactions": 0, "max_locks_per_transaction": 64,
}

// wrongSetting finds the name of a setting in PostgreSQL's complaint about it.
var wrongSetting = regexp.MustCompile(`parameter (?:name )?"([^"]+)"`)

// tryConf has PostgreSQL read a configuration file, and returns its complaints by the setting's name.
func (s Server) tryConf(ctx context.Context, path string) (map[string]string, error) {
	_, err := s.Programs.output(ctx, "postgres", "-C", "port", "-D", s.Volume.PGData(), "-c", "config_file="+path)
	if err == nil {
		return nil, nil
	}
	var failed *ProgramError
	if !errors.As(err, &failed) || ctx.Err() != nil {
		return nil, err
	}
	wrong := map[string]string{}
	for line := range strings.Lines(failed.Output) {
		m := severity.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		message := strings.ReplaceAll(m[2], fmt.Sprintf(" in file %q", path), "")
		if name := wrongSetting.FindStringSubmatch(message); name != nil {
			wrong[strings.ToLower(name[1])] = message
		}
	}
	if len(wrong) == 0 {
		return nil, err
	}
	return wrong, nil
}
