// Package api tests what users of the API meet, against a real kube-apiserver:
// what is refused, with which words; what is filled in; who owns which field.
package api

import (
	"os"
	"testing"

	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &plane, controlplane.Options{})) }
