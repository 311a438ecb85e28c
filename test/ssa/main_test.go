// Package ssa_test proves what the reconciler writes, field by field, against
// a real kube-apiserver with the real cert-manager controllers.
package ssa_test

import (
	"os"
	"testing"
	"time"

	"github.com/acme/pg-operator/test/audit"
	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CertManager: true, Afterwards: audited}))
}

// audited finds every write of the operator, in all tests, in the table of field managers, and no look at all Secrets.
func audited(p *controlplane.ControlPlane) error {
	return audit.Check(p.AuditLog(), time.Time{}, audit.Operator)
}
