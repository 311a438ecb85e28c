package runner_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/contract"
)

// outage has the API server be away for several durations of the Lease while all members are there.
func (c *trio) outage(t *testing.T) {
	primary, term := c.holder(), c.leaseNow().Term
	pid := postmaster(t, primary)
	c.do(func() { c.down, c.refused = true, 0 })
	// A renewal is tried every sixth of the Lease's duration, which is 3 s.
	c.await(t, 40*time.Second, "renewals failed for three durations of the Lease", func() bool { return c.refused >= 18 })
	c.write(t)
	c.do(func() { c.down = false })
	version := c.leaseNow().Version
	c.await(t, 10*time.Second, "the Lease is renewed", func() bool { return c.lease.Version != version })
	if l := c.leaseNow(); l.Term != term || !exists(pid) {
		t.Errorf("the primary did not go on: %+v", l)
	}
	c.rejoined(t)
}

// silence has the API server be away while a member is, too: that one might take the Lease.
func (c *trio) silence(t *testing.T) {
	primary := c.holder()
	pid := postmaster(t, primary)
	away := c.hosts[0]
	if away == primary {
		away = c.hosts[1]
	}
	away.halt()
	c.await(t, 10*time.Second, "the Lease is renewed", func() bool { return c.lease.Holder != "" })
	c.do(func() { c.down, c.refused = true, 0 })
	fencedInTime(t, c.renewalNow(), (&watchtower{world: c.world, a: primary}).death(t, pid), 3*time.Second)
	c.do(func() { c.down = false })
	away.start()
	c.await(t, 40*time.Second, "somebody serves", func() bool {
		return c.lease.HeldBy() != "" && c.primary.Instance == c.lease.HeldBy() && c.running(c.primary.Instance, primaryRole)
	})
	c.rejoined(t)
}

// ordered has the operator ask for each of the others in turn.
func (c *trio) ordered(t *testing.T) {
	for _, to := range c.hosts {
		old, term := c.holder(), c.leaseNow().Term
		if to == old {
			continue
		}
		id := "to-" + to.name
		c.config.Orders = []contract.Order{{ID: id, Instance: old.name, Kind: contract.OrderSwitchover, Target: to.name, Term: term}}
		c.setConfig(t, c.config)
		if next := c.awaitSuccessor(t, old); next != to {
			t.Errorf("%s took over, %s was to", next.name, to.name)
		}
		c.explained(t, old, to, "HandedOver")
		c.await(t, 10*time.Second, "the order is noted", func() bool { return c.pods[old.name].report.LastOrder == id })
		if lost := c.pod(to.name).report.LastFailover.LostBytes; lost == nil || *lost != 0 {
			t.Errorf("reports lost bytes %v", lost)
		}
		c.rejoined(t)
	}
	c.inVain(t)
	c.config.Orders = nil
	c.setConfig(t, c.config)
}

// inVain has the primary hand over while none of the others can take the Lease: it goes on as the primary, in a new term.
func (c *trio) inVain(t *testing.T) {
	old, term := c.holder(), c.leaseNow().Term
	order := contract.Order{ID: "in-vain", Instance: old.name, Kind: contract.OrderSwitchover, Term: term}
	for _, h := range c.hosts {
		if h != old {
			order.Target = h.name
			c.do(func() { c.cut[h.name] = true })
		}
	}
	c.config.Orders = []contract.Order{order}
	c.setConfig(t, c.config)
	c.await(t, 20*time.Second, "the Lease is released", func() bool { return c.lease.Holder == "" && c.lease.Successor == order.Target })
	c.await(t, 20*time.Second, "the primary takes it back", func() bool {
		return c.lease.HeldBy() == old.name && c.lease.Term == term+1 && c.running(old.name, primaryRole)
	})
	if last := c.pod(old.name).report.LastOrder; last != order.ID {
		t.Errorf("the last order is %q", last)
	}
	c.do(func() { clear(c.cut) })
	c.awaitPrimary(t, old)
	c.rejoined(t)
}

// hangs has a postmaster that lets nobody in.
func (c *trio) hangs(t *testing.T) {
	old := c.holder()
	pid := postmaster(t, old)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, "PostgresFailed")
	if exists(pid) {
		t.Error("the postmaster that hangs still exists")
	}
	if log := old.output.String(); !strings.Contains(log, "lets no new session in") {
		t.Error("the log does not say why")
	}
	c.rejoined(t)
}

// removed has somebody remove the data under a running primary.
func (c *trio) removed(t *testing.T) {
	old := c.holder()
	if err := os.RemoveAll(old.pgdata()); err != nil {
		t.Fatal(err)
	}
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, "PostgresFailed")
	c.rejoined(t)
}
