package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// defaults are the settings that users may change. What PostgreSQL's own default already does well is not here.
var defaults = map[string]string{
	// A log line that says when, which process, and who.
	"log_line_prefix": "%m [%p] %q%u@%d %a ",
	"log_checkpoints": "on",
	"log_timezone":    "UTC",
	"timezone":        "UTC",
	// What initdb would have written for the locale C, which every image has.
	"lc_messages":                "C",
	"lc_monetary":                "C",
	"lc_numeric":                 "C",
	"lc_time":                    "C",
	"default_text_search_config": "pg_catalog.english",
	// Room for five instances, their rewinds and clones, and backups.
	"max_wal_senders":       "16",
	"max_replication_slots": "16",
	// WAL for rewinding and for replicas that come back late, as the smallest volume has room for: see OnVolume.
	"wal_level":              "replica",
	"wal_keep_size":          "64MB",
	"max_slot_wal_keep_size": "128MB",
	// A lost peer is seen within seconds. A new primary is found at once: synchronous commits wait for that.
	"wal_sender_timeout":          "5s",
	"wal_receiver_timeout":        "5s",
	"wal_retrieve_retry_interval": "200ms",
	"tcp_keepalives_idle":         "30",
	"tcp_keepalives_interval":     "10",
	"tcp_keepalives_count":        "3",
	// Recovery begins with one call that writes the file system to disk, not with one per file.
	"recovery_init_sync_method": "syncfs",
	"ssl_min_protocol_version":  "TLSv1.2",
}

// fixed are the settings that users may not change; reserved says why.
var fixed = map[string]string{
	"ssl":                 "on",
	"password_encryption": "scram-sha-256",
	"hot_standby":         "on",
	"wal_log_hints":       "on",
	"fsync":               "on",
	"full_page_writes":    "on",
	"archive_mode":        "off",
	"logging_collector":   "off",
	"log_destination":     "stderr",
	"listen_addresses":    "*",
	"restart_after_crash": "on",
}

// Settings are all settings of a server but those that only its agent knows (paths, port, where to stream from):
// defaults of ours under the user's, under what is fixed. Names are in lower case, as pg_settings nearly has them.
func Settings(major string, user map[string]string) map[string]string {
	settings := maps.Clone(defaults)
	for name, value := range user {
		settings[strings.ToLower(name)] = value
	}
	maps.Copy(settings, fixed)
	if CompareMajor(major, "17") >= 0 {
		// ALTER SYSTEM would be undone by the agent, so it had better say no.
		settings["allow_alter_system"] = "off"
	}
	return settings
}

// SettingsHash identifies settings, client authentication lines, and whatever else belongs to them.
func SettingsHash(settings map[string]string, hba []string, more ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{RenderConf(settings), RenderHBA(hba)}, more...), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// RenderConf writes settings as the text of a postgresql.conf, sorted by name. Names must be well-formed
// (CheckParameters); values may hold anything but NUL, which PostgreSQL could not store.
func RenderConf(settings map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		b.WriteString(name)
		b.WriteString(" = ")
		b.WriteString(quoteConf(settings[name]))
		b.WriteByte('\n')
	}
	return b.String()
}

// confEscapes are the escapes of PostgreSQL's configuration files: a quote is doubled, and because a backslash
// begins an escape and a line ends at a line feed, both are escaped.
var confEscapes = strings.NewReplacer(`'`, `''`, `\`, `\\`, "\n", `\n`, "\r", `\r`, "\x00", "")

func quoteConf(value string) string { return "'" + confEscapes.Replace(value) + "'" }
