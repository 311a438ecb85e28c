// Package crash_test ends the operator before and after every single write of
// its flows, and proves that its successor always ends in the same state.
//
// There is no cert-manager here: the world calls certificates ready, which
// leaves the machine to the operator.
package crash_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/acme/pg-operator/test/audit"
	"github.com/acme/pg-operator/test/controlplane"
)

var (
	everyWrite = flag.Bool("every-write", false, "crash at every write, not at a few of each flow")
	seed       = flag.Uint64("seed", 1, "chooses the writes to crash at without -every-write")
	side       = flag.Int("side", 6, "how many clusters run side by side")
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(*side)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{
		Afterwards: func(p *controlplane.ControlPlane) error {
			return audit.Check(p.AuditLog(), time.Time{}, audit.Operator)
		},
	}))
}
