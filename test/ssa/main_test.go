// Package ssa_test proves what the reconciler writes, field by field, against
// a real kube-apiserver with the real cert-manager controllers.
package ssa_test

import (
	"os"
	"testing"

	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CertManager: true}))
}
