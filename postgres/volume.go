package postgres

import (
	"fmt"
	"maps"
	"math"
	"strings"
)

const mebibyte = 1 << 20

// OnVolume adds the settings that bound the write-ahead log by the size in bytes of the volume it shares with the data; user's
// own stay. PostgreSQL measures all three back from the end of the log, so that they do not add up: the log takes about
// max_wal_size, and until the next checkpoint as much again as the slots keep.
func OnVolume(user map[string]string, volume int64) map[string]string {
	all := make(map[string]string, len(user)+3)
	for _, bound := range []struct {
		name        string
		share       int64 // of the volume, as its divisor
		least, most int64 // in MB
	}{
		// A checkpoint begins before it; PostgreSQL's own default where there is room for it.
		{"max_wal_size", 10, 128, 1024},
		// For a replica that is away; one that is away for longer is cloned anew rather than filling the volume.
		{"max_slot_wal_keep_size", 10, 128, math.MaxInt32},
		// For a rewind, and a replica whose slot is gone.
		{"wal_keep_size", 40, 64, 256},
	} {
		all[bound.name] = fmt.Sprintf("%dMB", min(max(volume/bound.share/mebibyte, bound.least), bound.most))
	}
	for name := range user {
		delete(all, strings.ToLower(name))
	}
	maps.Copy(all, user)
	return all
}

// KeptLog is how much write-ahead log, in bytes, a user's settings let a replica that is away keep on the primary's volume;
// limited is false when they let it keep everything. Zero when they say nothing that can be read.
func KeptLog(major string, user map[string]string) (most int64, limited bool) {
	const name = "max_slot_wal_keep_size"
	for written, value := range user {
		if !strings.EqualFold(written, name) {
			continue
		}
		p, verdict := lookup(major, name)
		megabytes, wrong := p.number(value)
		switch {
		case verdict != known || wrong != "":
			return 0, true
		case megabytes < 0:
			return 0, false
		}
		return int64(megabytes) * mebibyte, true
	}
	return 0, true
}
