package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

// AuditLog is the file of the API server's audit log.
func (p *ControlPlane) AuditLog() string { return filepath.Join(p.dir, "audit.log") }

// configureAudit logs every finished request at once, so that a test finds its own, into one file.
func (p *ControlPlane) configureAudit(server *envtest.APIServer) error {
	policy := filepath.Join(p.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	server.Configure().Set("audit-policy-file", policy).Set("audit-log-path", p.AuditLog()).
		Set("audit-log-mode", "blocking-strict").
		Set("audit-log-maxsize", "100000") // Megabytes: one file.
	return nil
}

// audit is what was read of the log so far. A suite asks often, and its log grows long.
type audit struct {
	mu     sync.Mutex
	offset int64
	events []auditv1.Event
}

// read parses what came since the last time; a line that is still being written waits for the next.
func (a *audit) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("audit log at %d: %w", a.offset, err)
		}
		a.offset += int64(len(line))
		a.events = append(a.events, event)
	}
}

// AuditEvents are the requests so far that keep accepts, in the order in which they ended. An event has the user, the
// verb, the object, the answer's code and the request URI with its fieldManager; it has no bodies.
func (p *ControlPlane) AuditEvents(t testing.TB, keep func(*auditv1.Event) bool) []auditv1.Event {
	t.Helper()
	p.audit.mu.Lock()
	defer p.audit.mu.Unlock()
	if err := p.audit.read(p.AuditLog()); err != nil {
		t.Fatal(err)
	}
	var events []auditv1.Event
	for i := range p.audit.events {
		if keep(&p.audit.events[i]) {
			events = append(events, p.audit.events[i])
		}
	}
	return events
}
