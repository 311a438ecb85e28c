package runner_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/authority"
)

// TestFive runs five agents whose commits wait for two replicas, and takes two instances at a time away: whichever they
// are, the others have every commit that was acknowledged, need not wait for the end of the Lease, and go on writing.
func TestFive(t *testing.T) {
	major, here := withPostgres(t)
	if !here {
		return
	}
	c := &trio{world: newWorld(), config: config(major, 5, map[string]string{"max_connections": "20"})}
	c.config.FailoverEnabled, c.config.SuspicionMillis, c.config.LeaseDurationSeconds = true, 1500, 6
	c.config.Synchronous = &contract.Synchronous{Number: 2, Required: true}
	a := authority.New(t)
	for ordinal := range int32(5) {
		c.hosts = append(c.hosts, newHost(t, c.world, a, ordinal))
	}
	c.begin(t)
	c.await(t, 60*time.Second, "commits wait for two of four", func() bool {
		s := c.lease.Sync
		return s.Required && len(s.InForce) == 1 && s.InForce[0].Number == 2 && len(s.InForce[0].Standbys) == 4
	})
	c.config.LeaseDurationSeconds = 60
	c.setConfig(t, c.config)
	c.await(t, 30*time.Second, "the Lease is long", func() bool { return c.lease.Duration == time.Minute })

	old, lost := c.hosts[0], c.hosts[1] // The first one made the database.
	c.written++
	if err := commit(t, old, c.written); err != nil {
		t.Fatal(err)
	}
	c.do(func() { c.cut[old.name], c.cut[lost.name] = true, true })
	frozen := append(freeze(t, lost), freeze(t, old)...)
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, contract.CausePrimarySilent)
	if bytes := c.pod(next.name).report.LastFailover.LostBytes; bytes == nil || *bytes != 0 || next == lost {
		t.Errorf("%s took over, and reports %v bytes lost", next.name, bytes)
	}
	c.written++
	if err := commit(t, next, c.written); err != nil {
		t.Errorf("with three of five: %v", err)
	}
	for _, pid := range frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // Its agent may have ended it.
	}
	if err := commit(t, old, 1000); err == nil {
		t.Error("the former primary acknowledged a commit")
	}
	c.do(func() { c.cut[old.name], c.cut[lost.name] = false, false })
	c.rejoined(t)
}
