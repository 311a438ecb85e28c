// Package agent_test proves what the agents write, and with which rights,
// against a real kube-apiserver.
package agent_test

import (
	"os"
	"testing"
	"time"

	"github.com/acme/pg-operator/test/audit"
	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{Afterwards: func(p *controlplane.ControlPlane) error {
		return audit.Check(p.AuditLog(), time.Time{}, audit.Agents)
	}}))
}
