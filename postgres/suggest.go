package postgres

import (
	"maps"
	"slices"
	"strings"
)

// formerNames are settings that are gone, and what does their work now.
var formerNames = map[string]string{
	"checkpoint_segments": "max_wal_size",
	"sort_mem":            "work_mem",
	"vacuum_mem":          "maintenance_work_mem",
	"wal_keep_segments":   "wal_keep_size",
}

// suggest finds the setting that somebody most probably meant; empty if none is near.
func suggest(major, name string) string {
	name = strings.NewReplacer("-", "_", " ", "_", ".", "_").Replace(name)
	if now, found := formerNames[name]; found {
		return now
	}
	best, nearest := "", 1+min(3, len(name)/4)
	for _, candidate := range slices.Sorted(maps.Keys(catalogue)) {
		p, verdict := lookup(major, candidate)
		if verdict != known || refusal(p) != "" {
			continue
		}
		if d := distance(name, candidate, nearest); d < nearest {
			best, nearest = candidate, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to get from a to b. It gives up
// at limit.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replace := row[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			next[j] = min(replace, row[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
