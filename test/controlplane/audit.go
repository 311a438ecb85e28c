package controlplane

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

func (p *ControlPlane) auditLog() string { return filepath.Join(p.dir, "audit.log") }

// configureAudit logs every finished request at once, so that a test finds its own.
func (p *ControlPlane) configureAudit(server *envtest.APIServer) error {
	policy := filepath.Join(p.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	server.Configure().Set("audit-policy-file", policy).Set("audit-log-path", p.auditLog()).
		Set("audit-log-mode", "blocking-strict")
	return nil
}

// AuditEvents are the requests so far that keep accepts, in the order in which they ended. An event has the user, the
// verb, the object, the answer's code and the request URI with its fieldManager; it has no bodies.
func (p *ControlPlane) AuditEvents(t testing.TB, keep func(*auditv1.Event) bool) []auditv1.Event {
	t.Helper()
	file, err := os.Open(p.auditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var events []auditv1.Event
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // The last line while it is being written.
		}
		if keep(&event) {
			events = append(events, event)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}
