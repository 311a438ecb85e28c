package pgserver_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/pgserver"
)

// eachServer runs a test with every server there is. Where the local cluster is tested (PGO_E2E), that is one for each
// major version, and none may be missing; else it is the one of this machine, if it has any.
func eachServer(t *testing.T, test func(*testing.T, pgserver.Server)) {
	t.Helper()
	if os.Getenv("PGO_E2E") == "" {
		server, err := pgserver.Installed(t.Context())
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("this machine has no PostgreSQL, and make test-e2e tries those of the local cluster's images")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Run("installed "+server.Version.Full, func(t *testing.T) { test(t, server) })
		return
	}
	launcher, err := filepath.Abs(filepath.Join("..", "..", "bin", "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	for _, major := range postgres.Majors() {
		t.Run(major, func(t *testing.T) {
			t.Parallel()
			server, err := pgserver.FromImage(t.Context(), launcher, major)
			if err != nil {
				t.Fatal(err)
			}
			test(t, server)
		})
	}
}
