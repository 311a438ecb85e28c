// Package agent_test proves what the agents write, and with which rights,
// against a real kube-apiserver.
package agent_test

import (
	"os"
	"testing"

	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{}))
}
