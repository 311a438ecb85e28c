// Package figures prints what benchmarks measured, one line per quantity.
package figures

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Durations print n, median, 99th percentile and worst of some durations, with
// the machine's load average at that moment: figures of a busy machine are
// upper bounds.
func Durations(name string, values []time.Duration) {
	if len(values) == 0 {
		fmt.Printf("%-58s no values\n", name)
		return
	}
	sorted := slices.Sorted(slices.Values(values))
	fmt.Printf("%-58s n=%-4d median %-9s p99 %-9s worst %-9s load %s\n", name, len(sorted),
		short(quantile(sorted, 50)), short(quantile(sorted, 99)), short(sorted[len(sorted)-1]), load())
}

// Value prints a single quantity with its unit.
func Value(name string, value float64, unit string) {
	fmt.Printf("%-58s %.6g %s, load %s\n", name, value, unit, load())
}

// quantile is the smallest value that at least percent of all values do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	index := (len(sorted)*percent + 99) / 100
	return sorted[max(index, 1)-1]
}

// short rounds to three digits or so.
func short(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}

// load is the load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
