// Package contract is what the operator and the agents say to each other: the
// operator writes a Config into a cluster's ConfigMap, each agent answers with
// a Report on its own pod. It is all that the operator may import of instance.
//
// What an agent needs from the pod it runs in:
//   - environment POD_NAME, POD_NAMESPACE, POD_UID, POD_IP (downward API); flag --cluster NAME; optionally
//     --shutdown-timeout DURATION if the termination grace period is not TerminationGraceSeconds;
//   - the mounts of package naming: PathData (read-write), PathRun and PathTmp (emptyDir; PathRun best in memory,
//     private keys are copied there), PathServerTLS and PathClientTLS (tls.crt, tls.key, ca.crt), PathAppUser and
//     PathSuperuser (key "password"); a read-only root file system and any user id that the image's /etc/passwd knows;
//   - probes on PortProbe: PathStartup, PathLive, PathReady.
//
// What its ServiceAccount needs, limited by resourceNames: leases get, patch; configmaps get, list, watch;
// endpointslices.discovery.k8s.io get, patch; pods get, patch. The Lease and the EndpointSlice (with its addressType)
// have to exist.
package contract

import "time"

// Paths of the probes on naming.PortProbe. They answer yes (200) or no (503).
const (
	PathStartup = "/startupz"
	PathLive    = "/livez"
	PathReady   = "/readyz"
	// PathStatus on naming.PortAgent is a Status, for the cluster's instances.
	PathStatus = "/v1/status"
)

// Paths on naming.PortAgent by which the cluster's agents speak to each other.
const (
	// PathVote (POST) asks for a vote.
	PathVote = "/v1/vote"
	// PathPromise (POST) asks not to challenge the holder for a while, and to vote for nobody else.
	PathPromise = "/v1/promise"
	// PathHint (POST, a Hint) says that the Lease is worth a look now.
	PathHint = "/v1/hint"
	// PathHeartbeat (GET) is answered with a Heartbeat; QueryFrom and QueryPromised tell of who asks.
	PathHeartbeat = "/v1/heartbeat"
	// QueryFrom is the instance that asks, QueryPromised the last term of which it promised never to stream again.
	QueryFrom     = "from"
	QueryPromised = "promised"
)

// TerminationGraceSeconds is how long the kubelet lets an instance's pod stop, in seconds; the agent ends a little
// earlier than that.
const TerminationGraceSeconds = 120

// Status is what an instance answers on PathStatus: a Report with log positions.
type Status struct {
	// Instance that answers.
	Instance string `json:"instance"`
	Report
	// Written is how far a primary has written its log, such as "0/3000148"; Received and Replayed are a replica's.
	Written  string `json:"written,omitempty"`
	Received string `json:"received,omitempty"`
	Replayed string `json:"replayed,omitempty"`
	// LagBytes is how much received log a replica has yet to replay.
	LagBytes uint64 `json:"lagBytes,omitempty"`
}

// Config is what the agents of a cluster must know and do.
type Config struct {
	// Cluster and Namespace name the PostgresCluster.
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// Members are the names of the wanted instances, by ordinal. Only the first may make a new database.
	Members []string `json:"members"`
	// Version is the major version of PostgreSQL, such as "17".
	Version string `json:"version"`
	// SystemID is the identifier of the data that this cluster is known to have; once set, no agent runs initdb.
	SystemID string `json:"systemID,omitempty"`
	// LeaseDurationSeconds is how long a silent holder keeps the Lease.
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds"`
	// FailoverEnabled lets another member take over from a primary that failed.
	FailoverEnabled bool `json:"failoverEnabled,omitempty"`
	// SuspicionMillis is for how many milliseconds nothing may be heard of the primary before a member of a synchronous
	// quorum challenges it.
	SuspicionMillis int32 `json:"suspicionMillis,omitempty"`
	// MaxLagBytes is how much of the log, in bytes, may be lost in a failover without synchronous replication.
	MaxLagBytes int64 `json:"maxLagBytes,omitempty"`
	// Synchronous is how commits wait for replicas; nil if they do not.
	Synchronous *Synchronous `json:"synchronous,omitempty"`
	// Parameters are all settings of postgresql.conf but those an agent knows better (paths, conninfo).
	Parameters map[string]string `json:"parameters"`
	// HBA are the lines of pg_hba.conf.
	HBA []string `json:"hba"`
	// SettingsHash is a hash of Parameters, HBA, and what is said of failovers and synchronous replication; a Report repeats
	// the one in force.
	SettingsHash string `json:"settingsHash"`
	// Orders to single instances, oldest first.
	Orders []Order `json:"orders,omitempty"`
}

// Synchronous is how commits wait for replicas.
type Synchronous struct {
	// Number of replicas that must have a commit before it is acknowledged.
	Number int32 `json:"number"`
	// Required: without as many replicas commits wait, instead of being acknowledged all the same.
	Required bool `json:"required,omitempty"`
}

// OrderKind is what an order asks for.
type OrderKind string

const (
	// OrderRestart asks an instance to restart PostgreSQL, for settings that need it.
	OrderRestart OrderKind = "Restart"
	// OrderSwitchover asks the primary to hand over to the order's target.
	OrderSwitchover OrderKind = "Switchover"
)

// Order asks one instance for one thing. It is carried out once; the Report repeats the ID of the last one.
type Order struct {
	// ID is unique within a cluster.
	ID string `json:"id"`
	// Instance that is asked.
	Instance string `json:"instance"`
	// Kind of the order.
	Kind OrderKind `json:"kind"`
	// Target of a switchover is the instance that is to be the primary.
	Target string `json:"target,omitempty"`
	// Term of a switchover is the Lease's term in which it counts; in any other it is not carried out.
	Term int32 `json:"term,omitempty"`
}

// Role is the part an instance plays.
type Role string

const (
	// RolePrimary takes writes and holds the Lease.
	RolePrimary Role = "Primary"
	// RoleReplica streams from the primary.
	RoleReplica Role = "Replica"
)

// State is what an instance is doing.
type State string

const (
	// StateWaiting waits for something that Message names, such as the primary.
	StateWaiting State = "Waiting"
	// StateBootstrapping runs initdb.
	StateBootstrapping State = "Bootstrapping"
	// StateCloning copies the primary's data.
	StateCloning State = "Cloning"
	// StateStarting starts PostgreSQL or recovers.
	StateStarting State = "Starting"
	// StateRunning accepts connections; a replica also streams.
	StateRunning State = "Running"
	// StateNotStreaming is a replica that accepts connections but does not stream; Message says why.
	StateNotStreaming State = "NotStreaming"
	// StateLagging is a replica that streams, and serves data that is too old; Message says why.
	StateLagging State = "Lagging"
	// StateHung is a replica of which a part hangs; Message says which.
	StateHung State = "Hung"
	// StateStopping stops PostgreSQL.
	StateStopping State = "Stopping"
	// StateFailed cannot go on without help; Message says why and what to do.
	StateFailed State = "Failed"
)

// Report is what an instance says of itself, on change, and again from time to time in case others changed it. It
// carries no log positions.
type Report struct {
	// Incarnation is random per start of the agent.
	Incarnation string `json:"incarnation"`
	// Role and State of the instance.
	Role  Role  `json:"role,omitempty"`
	State State `json:"state"`
	// Message says why State is not StateRunning.
	Message string `json:"message,omitempty"`
	// Term is the Lease's term this instance last saw.
	Term int32 `json:"term,omitempty"`
	// LeaseMissing tells that the Lease does not exist; the agent goes on, and waits for the operator to make it again.
	LeaseMissing bool `json:"leaseMissing,omitempty"`
	// SystemID and Timeline of the data; empty without data.
	SystemID string `json:"systemID,omitempty"`
	Timeline int64  `json:"timeline,omitempty"`
	// DataVersion is the major version of the data, ServerVersion the full version of the programs.
	DataVersion   string `json:"dataVersion,omitempty"`
	ServerVersion string `json:"serverVersion,omitempty"`
	// AgentVersion is the version of the agent's binary.
	AgentVersion string `json:"agentVersion,omitempty"`
	// SettingsHash of the settings in force.
	SettingsHash string `json:"settingsHash,omitempty"`
	// SettingsError says which setting PostgreSQL refused, and why.
	SettingsError string `json:"settingsError,omitempty"`
	// SettingsRefused is the hash of the settings that SettingsError is about.
	SettingsRefused string `json:"settingsRefused,omitempty"`
	// PendingRestart names the settings that wait for a restart.
	PendingRestart []string `json:"pendingRestart,omitempty"`
	// CertificateSerial is the serial number of the server certificate in force.
	CertificateSerial string `json:"certificateSerial,omitempty"`
	// LastOrder is the ID of the last order carried out.
	LastOrder string `json:"lastOrder,omitempty"`
	// OrderProblem says why an order cannot be carried out yet.
	OrderProblem string `json:"orderProblem,omitempty"`
	// Waiting is a reason in CamelCase, such as WaitingForQuorum, why the cluster has no primary; Message tells more.
	// WaitingSince is when it became that.
	Waiting      string    `json:"waiting,omitempty"`
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// Synchronous is what commits wait for by the primary's settings in force; nil if they do not wait.
	Synchronous *Quorum `json:"synchronous,omitempty"`
	// Named are the instances that the Lease names, as members or as those that commits may wait for; its holder says so.
	// None of them may be removed for good: the next election may need it.
	Named []string `json:"named,omitempty"`
	// LastFailover of the cluster, as the Lease has it.
	LastFailover *Failover `json:"lastFailover,omitempty"`
}
