package cluster

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/acme/pg-operator/test/cluster/internal/node"
	"github.com/acme/pg-operator/test/cluster/internal/process"
)

// Usage is resident memory in bytes. Pages that processes share are counted for
// each, so the sum is an upper bound.
type Usage struct {
	Processes []process.Record
	// Shims are what processes of the cluster started: containerd's shims.
	Shims int64
	// Pods are the containers of all nodes.
	Pods int64
}

// Total sums up everything that belongs to the cluster.
func (u Usage) Total() int64 {
	sum := u.Shims + u.Pods
	for _, record := range u.Processes {
		sum += record.RSS()
	}
	return sum
}

// Measure reads the resident memory of a cluster.
func Measure(settings *Settings) (Usage, error) {
	records, err := process.NewTable(settings.layout()).List()
	if err != nil {
		return Usage{}, err
	}
	nodes, err := settings.nodes()
	if err != nil {
		return Usage{}, err
	}
	usage := Usage{Processes: records}
	for _, marked := range process.Marked() {
		known := slices.ContainsFunc(records, func(record process.Record) bool { return record.PID == marked.PID })
		if !known {
			usage.Shims += marked.RSS()
		}
	}
	for _, n := range nodes {
		usage.Pods += node.PodsRSS(n)
	}
	return usage, nil
}

// Status prints the processes, their memory and whether they run. It reports an
// error when one does not.
func Status(out io.Writer) error {
	settings, err := loadSettings()
	if err != nil {
		return err
	}
	usage, err := Measure(settings)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PROCESS\tPID\tSTATE\tRESIDENT")
	var dead []string
	for _, record := range usage.Processes {
		state := "running"
		if !record.Alive() {
			state = "ended"
			dead = append(dead, record.Name)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", record.Name, record.PID, state, mebibytes(record.RSS()))
	}
	fmt.Fprintf(table, "containerd shims\t\t\t%s\n", mebibytes(usage.Shims))
	fmt.Fprintf(table, "pods\t\t\t%s\n", mebibytes(usage.Pods))
	fmt.Fprintf(table, "total\t\t\t%s\n", mebibytes(usage.Total()))
	if err := table.Flush(); err != nil {
		return err
	}
	if len(dead) > 0 {
		return fmt.Errorf("not running: %s; logs are in %s; repair with make cluster-up", strings.Join(dead, ", "), settings.layout().Path("logs"))
	}
	return nil
}
