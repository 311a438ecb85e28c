// Package table sums up what the runs of faults showed. It is pure.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Run is what one run of a fault showed.
type Run struct {
	// Mode of the cluster, such as "3 required", and the fault.
	Mode, Fault string
	// Outage is the longest time without an acknowledged write, from the last one to the next one.
	Outage time.Duration
	// Detected and Promoted are when the agents noticed the fault and when the new primary took over, since the fault
	// began; 0 without a failover.
	Detected, Promoted time.Duration
	// Writes acknowledged, and those of them that are lost.
	Writes, Lost int
	// TwoWriters is how long two instances acknowledged writes.
	TwoWriters time.Duration
	// Stale is by how much reads of a primary that was replaced were late.
	Stale time.Duration
	// Moved tells that another instance is the primary now.
	Moved bool
	// Back is how long after the fault's end all instances ran again, the old primary among them.
	Back time.Duration
	// Reason that the cluster's status showed.
	Reason string
	// Problem is what was not right, empty if all was.
	Problem string
}

// Row sums up the runs of one fault in one mode.
type Row struct {
	Mode, Fault   string
	Runs, Bad     int
	Moved         int
	P50, P99, Max time.Duration // of the outages
	// Detected and Promoted are the medians of the runs with a failover.
	Detected, Promoted time.Duration
	Writes, Lost       int
	TwoWriters         time.Duration // the longest
	Stale              time.Duration // the longest
	BackP50, Back      time.Duration // the median and the longest
	Reasons            []string
}

// Rows sums up runs, in the order of their first appearance.
func Rows(runs []Run) []Row {
	var rows []Row
	for _, r := range runs {
		if !slices.ContainsFunc(rows, func(row Row) bool { return row.Mode == r.Mode && row.Fault == r.Fault }) {
			rows = append(rows, Row{Mode: r.Mode, Fault: r.Fault})
		}
	}
	for i := range rows {
		rows[i].sum(runs)
	}
	return rows
}

func (row *Row) sum(runs []Run) {
	var outages, backs, detected, promoted []time.Duration
	for _, r := range runs {
		if r.Mode != row.Mode || r.Fault != row.Fault {
			continue
		}
		row.Runs++
		if r.Problem != "" {
			row.Bad++
		}
		if r.Moved {
			row.Moved++
		}
		if r.Promoted != 0 {
			detected, promoted = append(detected, r.Detected), append(promoted, r.Promoted)
		}
		outages, backs = append(outages, r.Outage), append(backs, r.Back)
		row.Writes, row.Lost = row.Writes+r.Writes, row.Lost+r.Lost
		row.TwoWriters, row.Stale = max(row.TwoWriters, r.TwoWriters), max(row.Stale, r.Stale)
		if r.Reason != "" && !slices.Contains(row.Reasons, r.Reason) {
			row.Reasons = append(row.Reasons, r.Reason)
		}
	}
	row.P50, row.P99, row.Max = Quantile(outages, 0.5), Quantile(outages, 0.99), Quantile(outages, 1)
	row.Detected, row.Promoted = Quantile(detected, 0.5), Quantile(promoted, 0.5)
	row.BackP50, row.Back = Quantile(backs, 0.5), Quantile(backs, 1)
}

// Quantile is the smallest of the values that at least the share q of them do not exceed; 0 without values.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := int(q * float64(len(sorted)))
	if float64(n) < q*float64(len(sorted)) {
		n++
	}
	return sorted[max(n, 1)-1]
}

// Write prints the table, in seconds.
func Write(out io.Writer, runs []Run) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "MODE\tFAULT\tRUNS\tMOVED\tOUTAGE P50\tP99\tMAX\tDETECTED\tPROMOTED\tWRITES\tLOST\tTWO WRITERS\tSTALE\tBACK P50\tMAX\tBAD\tREASON")
	for _, r := range Rows(runs) {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", r.Mode, r.Fault, r.Runs, r.Moved,
			seconds(r.P50), seconds(r.P99), seconds(r.Max), seconds(r.Detected), seconds(r.Promoted), r.Writes, r.Lost, seconds(r.TwoWriters), seconds(r.Stale),
			seconds(r.BackP50), seconds(r.Back), r.Bad, strings.Join(r.Reasons, " / "))
	}
	return table.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
