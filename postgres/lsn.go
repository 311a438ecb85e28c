package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a position in the write-ahead log, in bytes from its beginning. Zero is no position.
type LSN uint64

// ParseLSN reads PostgreSQL's spelling, such as "16/B374D848".
func ParseLSN(s string) (LSN, error) {
	high, low, found := strings.Cut(s, "/")
	h, errHigh := parseHex32(high)
	l, errLow := parseHex32(low)
	if !found || errHigh != nil || errLow != nil {
		return 0, fmt.Errorf("%q is not a log position such as 16/B374D848", s)
	}
	return LSN(h<<32 | l), nil
}

func parseHex32(s string) (uint64, error) {
	if strings.HasPrefix(s, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(s, 16, 32)
}

// String is PostgreSQL's spelling.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint64(l)>>32, uint64(l)&0xFFFFFFFF) }

// BytesAfter is how many bytes of log lie between other and l, 0 if l does not lie after other.
func (l LSN) BytesAfter(other LSN) uint64 {
	if l <= other {
		return 0
	}
	return uint64(l - other)
}

// Timeline numbers the histories of one database: each promotion begins a new one.
type Timeline uint32

// HistoryFile is the name of the file that tells where a timeline comes from.
func (t Timeline) HistoryFile() string { return fmt.Sprintf("%08X.history", uint32(t)) }

// Fork is where a timeline's history left its parent.
type Fork struct {
	// Parent is the older timeline.
	Parent Timeline
	// At is the position up to which both are the same.
	At LSN
}

// ParseHistory reads a timeline's history file, oldest fork first.
func ParseHistory(content string) ([]Fork, error) {
	var forks []Fork
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %q of the timeline history has no log position", line)
		}
		parent, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("line %q of the timeline history has no timeline: %w", line, err)
		}
		at, err := ParseLSN(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %q of the timeline history: %w", line, err)
		}
		forks = append(forks, Fork{Parent: Timeline(parent), At: at})
	}
	return forks, nil
}

// TimelineOfFile is the timeline in the name of a file of the write-ahead log.
func TimelineOfFile(name string) (Timeline, error) {
	if len(name) != 24 {
		return 0, fmt.Errorf("%q is not the name of a file of the write-ahead log", name)
	}
	t, err := parseHex32(name[:8])
	if err != nil {
		return 0, fmt.Errorf("%q is not the name of a file of the write-ahead log", name)
	}
	return Timeline(t), nil
}

// SegmentFile is the name of the file that holds position l of timeline t, with files of segmentSize bytes.
func SegmentFile(t Timeline, l LSN, segmentSize uint64) string {
	number := uint64(l) / segmentSize
	perID := (uint64(1) << 32) / segmentSize
	return fmt.Sprintf("%08X%08X%08X", uint32(t), number/perID, number%perID)
}
