package contract

// Heartbeat is what an agent answers on PathHeartbeat.
type Heartbeat struct {
	// Instance that answers.
	Instance string `json:"instance"`
	// Term it last saw in the Lease.
	Term int32 `json:"term,omitempty"`
	// Leading: it holds the Lease, and its PostgreSQL takes writes. Healthy: PostgreSQL answered when it was last asked,
	// which was not long ago.
	Leading bool `json:"leading,omitempty"`
	Healthy bool `json:"healthy,omitempty"`
	// Kept is from where on a primary keeps its log for each of its replicas that needs some, by instance, such as
	// "0/3000148". Nil if it leads nobody, or does not know yet.
	Kept map[string]string `json:"kept"`
}

// Hint says that the Lease changed, or is about to.
type Hint struct {
	// Term that whoever sends it last saw.
	Term int32 `json:"term"`
}
