package postgres

import (
	"slices"
	"strings"
)

const (
	byAgent     = "the agent sets it; leave it out"
	byTLS       = "TLS is always on, with the cluster's own certificates; leave it out"
	byRecovery  = "the agents decide who recovers, and up to where; leave it out"
	byArchiving = "the operator sets up archiving itself; leave it out"
	byLogging   = "logs go to the container's standard error, where Kubernetes collects them; leave it out"
	notInclude  = "it would read another file; put the settings themselves into the spec"
	perSession  = "it is for single sessions; set it there, or with ALTER ROLE or ALTER DATABASE"
	imagesOwn   = "the server's code comes from its image's own directories; put the files there, in an image of your own"
	byClients   = "clients say it for themselves; set it there, or with ALTER ROLE"
	onlyShown   = "PostgreSQL only shows it, nothing can set it; leave it out"
	passwords   = "only passwords and certificates let clients in; leave it out"
	hidesDamage = "it hides damaged data; ask for a clone of the instance, or restore a backup"
	forDebug    = "it is for PostgreSQL's developers; leave it out"
)

// reserved are the settings that users may not set, with the reason and what to do instead: what the operator and the
// agents own, what loses data, lets somebody in, or runs a program. An object that has one anyhow is not acted upon, so
// a name may only be added here if no release ever accepted it; others belong into unwise.
var reserved = map[string]string{
	"listen_addresses":              "the agent listens where the Services expect it; use a NetworkPolicy to limit who may connect",
	"port":                          "the Services expect port 5432; choose another port in a Service of your own",
	"config_file":                   byAgent,
	"data_directory":                byAgent,
	"hba_file":                      byAgent,
	"ident_file":                    byAgent,
	"external_pid_file":             byAgent,
	"cluster_name":                  "it is the instance's name; set application_name in your clients instead",
	"primary_conninfo":              byAgent,
	"primary_slot_name":             byAgent,
	"hot_standby":                   "replicas always serve reads; leave it out",
	"wal_log_hints":                 "a former primary is rewound with its help; it stays on, leave it out",
	"wal_receiver_create_temp_slot": "each replica has a slot of its own; leave it out",
	"synchronous_standby_names":     "the agents choose synchronous replicas; set spec.synchronous",
	"synchronized_standby_slots":    "the agents choose synchronous replicas; leave it out",
	"fsync":                         "without it a crash loses the database; use synchronous_commit = off to trade the last transactions for speed",
	"full_page_writes":              "without it a crash can damage pages; use wal_compression = on to write less",
	"data_sync_retry":               "a retry after a failed fsync loses writes silently; leave it out",
	"restart_after_crash":           byAgent,
	"restore_command":               byArchiving,
	"password_encryption":           "passwords are always stored as scram-sha-256; leave it out",
	"db_user_namespace":             "names of roles would depend on the database; leave it out",
	"promote_trigger_file":          byRecovery,
	"allow_alter_system":            "settings are changed in the spec; leave it out",
	"logging_collector":             byLogging,
	"log_destination":               byLogging,
	"log_directory":                 byLogging,
	"log_filename":                  byLogging,
	"log_file_mode":                 byLogging,
	"log_rotation_age":              byLogging,
	"log_rotation_size":             byLogging,
	"log_truncate_on_rotation":      byLogging,
	"event_source":                  byLogging,
	"bonjour":                       byAgent,
	"bonjour_name":                  byAgent,
	"include":                       notInclude,
	"include_dir":                   notInclude,
	"include_if_exists":             notInclude,
	"default_transaction_read_only": "the agents' own sessions would be read-only; use ALTER ROLE or ALTER DATABASE",
	"transaction_read_only":         perSession,
	"transaction_isolation":         perSession,
	"transaction_deferrable":        perSession,
	"session_replication_role":      perSession,
	"zero_damaged_pages":            hidesDamage,
	"ignore_checksum_failure":       hidesDamage,
	"ignore_invalid_pages":          hidesDamage,
	"ignore_system_indexes":         hidesDamage,
	"exit_on_error":                 forDebug,
}

// unwise are settings that a server runs with, but that no change may bring in.
var unwise = map[string]string{
	"dynamic_library_path":      imagesOwn,
	"extension_control_path":    imagesOwn,
	"jit_provider":              imagesOwn,
	"local_preload_libraries":   "a library that is missing would keep every application out; use shared_preload_libraries",
	"session_preload_libraries": "a library that is missing would keep every application out; use shared_preload_libraries",
	"lo_compat_privileges":      "everybody could read and change all large objects; use GRANT ON LARGE OBJECT",
	"event_triggers":            perSession,
	"client_encoding":           byClients,
}

var reservedPrefixes = []struct{ prefix, reason string }{
	{"ssl", byTLS},
	{"unix_socket_", "the agent connects through the Unix socket; leave it out"},
	{"recovery_", byRecovery},
	{"archive_", byArchiving},
	{"krb_", passwords},
	{"gss_", passwords},
	{"oauth_", passwords},
	{"syslog_", byLogging},
}

// unreserved begin like reserved settings but are the user's.
var unreserved = []string{"ssl_min_protocol_version", "recovery_prefetch", "recovery_init_sync_method"}

// reservedReason tells why a setting, in lower case, is not the user's; empty if it is.
func reservedReason(name string) string {
	if reason, found := reserved[name]; found {
		return reason
	}
	if slices.Contains(unreserved, name) {
		return ""
	}
	for _, r := range reservedPrefixes {
		if strings.HasPrefix(name, r.prefix) {
			return r.reason
		}
	}
	return ""
}

// refusal tells why a setting of the catalogue is not for users; empty if it is.
func refusal(p parameter) string {
	switch {
	case reservedReason(p.name) != "":
		return reservedReason(p.name)
	case p.context == "internal":
		return onlyShown
	case p.developer:
		return forDebug
	default:
		return unwise[p.name]
	}
}
