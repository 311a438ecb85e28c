package election

import (
	"time"

	"github.com/acme/pg-operator/postgres"
)

// VoteRequest is what a candidate asks a member.
type VoteRequest struct {
	Candidate string `json:"candidate"`
	SystemID  string `json:"systemID"`
	// Term of the Lease that the candidate wants to end: who grants promises never to stream from it again.
	Term int32 `json:"term"`
	// Free: the candidate knows the Lease to be free. Otherwise it only suspects its holder.
	Free bool `json:"free,omitempty"`
	// Probe: the member is only asked whether it would grant. It promises nothing, and does not detach.
	Probe bool `json:"probe,omitempty"`
}

// Vote is a member's answer, and a candidate's own.
type Vote struct {
	Instance    string `json:"instance"`
	Incarnation string `json:"incarnation,omitempty"`
	// SystemID of the data, empty without any. Complete: the data may be promoted.
	SystemID string `json:"systemID,omitempty"`
	Complete bool   `json:"complete,omitempty"`
	// Granted, or Refusal says why not.
	Granted bool   `json:"granted"`
	Refusal string `json:"refusal,omitempty"`
	// Promised is the newest term that the member never streams from again, on disk. LedTerm is the last in which it
	// was the primary, SeenTerm the newest that it knows of.
	Promised int32 `json:"promised,omitempty"`
	LedTerm  int32 `json:"ledTerm,omitempty"`
	SeenTerm int32 `json:"seenTerm,omitempty"`
	// Timeline of the log at Received, and the end of all log the instance has: the larger one of what it received and
	// what it replayed, and only once it replayed all that it had when PostgreSQL started.
	Timeline postgres.Timeline `json:"timeline,omitempty"`
	Received postgres.LSN      `json:"received,omitempty"`
	// Detached: nothing is received any more, so Received stays.
	Detached bool `json:"detached,omitempty"`
	// Lagging: much of what was received is not replayed.
	Lagging bool `json:"lagging,omitempty"`
}

// HoldRequest is what a holder asks a member when its renewals fail.
type HoldRequest struct {
	Holder string `json:"holder"`
	Term   int32  `json:"term"`
	// Duration, from receipt, for which the member is to stand for nothing and to vote for nobody.
	Duration time.Duration `json:"duration"`
}

// HoldAnswer is a member's answer.
type HoldAnswer struct {
	// Instance that answers.
	Instance string `json:"instance"`
	Granted  bool   `json:"granted"`
	Refusal  string `json:"refusal,omitempty"`
	// Promised is the newest term that the member never streams from again.
	Promised int32 `json:"promised,omitempty"`
}
