package postgres

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DataState is the state of a data directory as its control file tells it.
type DataState string

// The states that pg_controldata knows.
const (
	DataStartingUp         DataState = "starting up"
	DataShutDown           DataState = "shut down"
	DataShutDownInRecovery DataState = "shut down in recovery"
	DataShuttingDown       DataState = "shutting down"
	DataInCrashRecovery    DataState = "in crash recovery"
	DataInArchiveRecovery  DataState = "in archive recovery"
	DataInProduction       DataState = "in production"
)

// CleanlyStopped tells whether the last shutdown wrote its checkpoint.
func (s DataState) CleanlyStopped() bool { return s == DataShutDown || s == DataShutDownInRecovery }

// ControlData is what the control file of a data directory says.
type ControlData struct {
	// SystemID identifies the database; made by initdb, and equal on all copies of it.
	SystemID string
	// State the data was left in.
	State DataState
	// Timeline and Checkpoint of the last checkpoint, Redo the position where recovery would begin.
	Timeline   Timeline
	Checkpoint LSN
	Redo       LSN
	// MinRecoveryEnd is the position a replica has to reach to be consistent, on MinRecoveryTimeline.
	MinRecoveryEnd      LSN
	MinRecoveryTimeline Timeline
	// Checksums tells whether pages have checksums, WALLogHints whether hint bits are logged; pg_rewind needs one.
	Checksums   bool
	WALLogHints bool
	// SegmentSize is the size of a file of the write-ahead log in bytes.
	SegmentSize uint64
	// ReplicaLeast are the settings that a replica must not have lower than its primary, with the primary's values.
	ReplicaLeast map[string]int
}

// replicaLeast are those settings, as pg_controldata names them.
var replicaLeast = map[string]string{
	"max_connections": "max_connections setting", "max_worker_processes": "max_worker_processes setting",
	"max_wal_senders": "max_wal_senders setting", "max_prepared_transactions": "max_prepared_xacts setting",
	"max_locks_per_transaction": "max_locks_per_xact setting",
}

// LastTimeline is the newest timeline the data is known to be on.
func (c ControlData) LastTimeline() Timeline { return max(c.Timeline, c.MinRecoveryTimeline) }

// ParseControlData reads the output of pg_controldata run with LC_ALL=C.
func ParseControlData(output string) (ControlData, error) {
	values := map[string]string{}
	for line := range strings.Lines(output) {
		if key, value, found := strings.Cut(line, ":"); found {
			values[key] = strings.TrimSpace(value)
		}
	}
	r := controlReader{values: values}
	data := ControlData{
		SystemID:            r.text("Database system identifier"),
		State:               DataState(r.text("Database cluster state")),
		Timeline:            Timeline(r.number("Latest checkpoint's TimeLineID")),
		Checkpoint:          r.lsn("Latest checkpoint location"),
		Redo:                r.lsn("Latest checkpoint's REDO location"),
		MinRecoveryEnd:      r.lsn("Minimum recovery ending location"),
		MinRecoveryTimeline: Timeline(r.number("Min recovery ending loc's timeline")),
		Checksums:           r.number("Data page checksum version") != 0,
		WALLogHints:         r.text("wal_log_hints setting") == "on",
		SegmentSize:         uint64(r.number("Bytes per WAL segment")),
		ReplicaLeast:        map[string]int{},
	}
	for setting, key := range replicaLeast {
		data.ReplicaLeast[setting] = int(r.number(key))
	}
	return data, errors.Join(r.errs...)
}

type controlReader struct {
	values map[string]string
	errs   []error
}

func (r *controlReader) text(key string) string {
	value := r.values[key]
	if value == "" {
		r.errs = append(r.errs, fmt.Errorf("pg_controldata does not print %q", key))
	}
	return value
}

func (r *controlReader) number(key string) uint32 {
	value := r.text(key)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s of pg_controldata: %w", key, err))
	}
	return uint32(n)
}

func (r *controlReader) lsn(key string) LSN {
	value := r.text(key)
	if value == "" {
		return 0
	}
	l, err := ParseLSN(value)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s of pg_controldata: %w", key, err))
	}
	return l
}
