package runner_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/agent"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/test/authority"
)

// trio is a cluster of three whose members take over from each other.
type trio struct {
	*world
	hosts  []*host
	config contract.Config
	// written is how many rows were written through whoever was the primary.
	written int
}

// TestElections runs three agents with a real PostgreSQL each, and only the API server in memory.
func TestElections(t *testing.T) {
	major, here := withPostgres(t)
	if !here {
		return
	}
	c := &trio{world: newWorld(), config: config(major, 3, map[string]string{
		"wal_keep_size": "32MB", "wal_level": "logical", "max_connections": "20", "log_statement": "ddl",
		"max_standby_streaming_delay": "-1", // A reader may be in the way for ever.
	})}
	c.config.FailoverEnabled, c.config.MaxLagBytes, c.config.SuspicionMillis = true, 16<<20, 1500
	a := authority.New(t)
	for ordinal := range int32(3) {
		c.hosts = append(c.hosts, newHost(t, c.world, a, ordinal))
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"begin", c.begin},
		{"a hostile owner moves in", c.movesIn},
		{"postmaster killed", c.killed},
		{"pod stopped", c.stopped},
		{"API server down", c.outage},
		{"API server down, and a member", c.silence},
		{"ordered to hand over", c.ordered},
		{"a replica away through a failover", c.away},
		{"primary hangs", c.hangs},
		{"data removed", c.removed},
		{"primary cut off", c.cutOff},
		{"Lease made anew", c.madeAnew},
		{"primary known to have ended", c.dead},
		{"primary silent, quorum required", c.silent},
		{"impostor", c.impostor},
		{"crowded", c.crowded},
		{"strangers", c.strangers},
		{"the hostile owner gained nothing", c.gainedNothing},
	} {
		begun := time.Now()
		if !t.Run(step.name, func(t *testing.T) {
			for _, h := range c.hosts {
				h.t = t
			}
			step.run(t)
		}) {
			break
		}
		t.Logf("%-30s %v", step.name, time.Since(begun).Round(time.Millisecond))
	}
	for _, h := range c.hosts {
		h.t = t
	}
}

func (c *trio) begin(t *testing.T) {
	c.setConfig(t, c.config)
	for _, h := range c.hosts {
		h.start()
	}
	c.awaitPrimary(t, c.hosts[0])
	c.awaitReplicas(t)
	c.hosts[0].mustSQL("app", "CREATE TABLE public.note (n int)")
	c.hosts[0].mustSQL("app", "GRANT ALL ON public.note TO app")
	c.write(t)
}

// host with a name.
func (c *trio) host(name string) *host {
	for _, h := range c.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

// holder of the Lease.
func (c *trio) holder() *host { return c.host(c.leaseNow().HeldBy()) }

// awaitPrimary waits until an instance serves in the Lease's term, and it alone has the primary's label.
func (c *trio) awaitPrimary(t *testing.T, h *host) {
	t.Helper()
	c.await(t, 30*time.Second, h.name+" serves", func() bool {
		return c.running(h.name, primaryRole) && c.lease.HeldBy() == h.name && c.primary.Instance == h.name &&
			len(c.labelled()) == 1
	})
}

// awaitReplicas waits until all others stream.
func (c *trio) awaitReplicas(t *testing.T) {
	t.Helper()
	c.await(t, 40*time.Second, "the others stream", func() bool {
		for _, h := range c.hosts {
			if h.name != c.lease.HeldBy() && !c.running(h.name, replicaRole) {
				return false
			}
		}
		return true
	})
}

// streams tells whether somebody streams from a primary.
func (c *trio) streams(primary *host) bool {
	got, err := primary.sql("postgres", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
	return err == nil && got != "0"
}

// write writes a row to the primary, and waits until it is everywhere.
func (c *trio) write(t *testing.T) {
	t.Helper()
	c.written++
	c.holder().mustSQL("app", fmt.Sprintf("INSERT INTO public.note VALUES (%d)", c.written))
	for _, h := range c.hosts {
		eventually(t, 20*time.Second, fmt.Sprintf("%s has %d rows", h.name, c.written), func() bool {
			got, err := h.sql("app", "SELECT count(*) FROM public.note")
			return err == nil && got == fmt.Sprint(c.written)
		})
	}
}

// awaitSuccessor waits until another instance than h serves, and returns it.
func (c *trio) awaitSuccessor(t *testing.T, h *host) *host {
	t.Helper()
	begun := time.Now()
	c.await(t, 30*time.Second, "another instance serves", func() bool {
		return c.primary.Instance != "" && c.primary.Instance != h.name && c.lease.HeldBy() == c.primary.Instance
	})
	next := c.holder()
	t.Logf("%s serves instead of %s after %v", next.name, h.name, time.Since(begun).Round(time.Millisecond))
	c.awaitPrimary(t, next)
	return next
}

// awaitReason waits until an instance reports why it does not take over.
func (c *trio) awaitReason(t *testing.T, word, text string) {
	t.Helper()
	c.await(t, 20*time.Second, word+": "+text, func() bool {
		for _, p := range c.pods {
			if p.report.Waiting == word && strings.Contains(p.report.Message, text) {
				return true
			}
		}
		return false
	})
}

// rejoined waits until the former primary streams, and proves that nothing is lost.
func (c *trio) rejoined(t *testing.T) {
	t.Helper()
	begun := time.Now()
	c.awaitReplicas(t)
	t.Logf("all stream after %v", time.Since(begun).Round(time.Millisecond))
	c.write(t)
}

// killed has the primary's PostgreSQL die under an agent that lives.
func (c *trio) killed(t *testing.T) {
	old := c.holder()
	killed := 0
	eventually(t, 30*time.Second, "the Lease is given away", func() bool {
		if c.leaseNow().HeldBy() != old.name {
			return true
		}
		// A primary that has not seen its replicas yet starts again in place, and has to see them then.
		if !c.streams(old) {
			return false
		}
		content, err := os.ReadFile(filepath.Join(old.pgdata(), "postmaster.pid"))
		pid, _, _ := strings.Cut(string(content), "\n")
		if number, bad := strconv.Atoi(pid); err == nil && bad == nil && number != killed {
			killed = number
			_ = syscall.Kill(killed, syscall.SIGKILL) // It may have ended meanwhile.
		}
		return false
	})
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, "PostgresFailed")
	c.rejoined(t)
}

// stopped has the primary's pod be deleted, and come back.
func (c *trio) stopped(t *testing.T) {
	old := c.holder()
	old.halt()
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, "HandedOver")
	old.start()
	c.rejoined(t)
}

// explained tells whether the failover is reported as it was.
func (c *trio) explained(t *testing.T, from, to *host, cause string) {
	t.Helper()
	c.await(t, 10*time.Second, "the failover is reported", func() bool {
		f := c.pods[to.name].report.LastFailover
		return f != nil && f.Term == c.lease.Term && !f.Promoted.IsZero()
	})
	f := c.pod(to.name).report.LastFailover
	if f.From != from.name || f.To != to.name || !strings.HasPrefix(f.Cause, cause) || f.Promoted.Before(f.Detected) {
		t.Errorf("reports %+v", f)
	}
}

// cutOff takes the API server and its peers away from the primary.
func (c *trio) cutOff(t *testing.T) {
	old := c.holder()
	c.cutOffDead(t, old)
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, "LeaseExpired")
	c.do(func() { c.cut[old.name] = false })
	c.rejoined(t)
}

// cutOffDead kills a primary's PostgreSQL and takes the API server away from its agent, right after a renewal: it is not
// known yet then that the Lease cannot be given away, and the attempt ends the licence.
func (c *trio) cutOffDead(t *testing.T, primary *host) {
	t.Helper()
	renewal := c.renewalNow()
	c.await(t, 10*time.Second, "the Lease is renewed", func() bool { return c.renewal != renewal })
	if err := syscall.Kill(postmaster(t, primary), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.do(func() { c.cut[primary.name] = true })
}

// madeAnew has somebody delete the Lease while nothing runs, and the operator make it again. One of three volumes has a
// primary's data, and nothing but its agent's memory tells so.
func (c *trio) madeAnew(t *testing.T) {
	old := c.holder()
	for _, h := range c.hosts {
		if h != old {
			h.halt()
		}
	}
	c.written++
	old.mustSQL("app", fmt.Sprintf("INSERT INTO public.note VALUES (%d)", c.written))
	old.halt()
	c.do(func() {
		c.version++
		c.lease = lease.Lease{Version: strconv.Itoa(c.version)}
		c.primary = agent.Endpoint{}
	})
	for _, h := range c.hosts {
		h.start()
	}
	c.awaitPrimary(t, old)
	c.rejoined(t)
}

// dead has the kubelet say that the primary's container has ended, long before its Lease does.
func (c *trio) dead(t *testing.T) {
	c.config.LeaseDurationSeconds, c.config.SuspicionMillis = 20, 500
	c.setConfig(t, c.config)
	old := c.holder()
	c.await(t, 30*time.Second, "the Lease is long", func() bool { return c.lease.Duration == 20*time.Second })
	c.do(func() { c.cut[old.name] = true })
	if err := syscall.Kill(postmaster(t, old), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.awaitReason(t, contract.WaitingForLease, "nothing is heard of "+old.name)
	c.do(func() { c.ended = c.lease.Holder })
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, contract.CausePrimaryDead)
	old.halt() // As the kubelet said.
	c.do(func() { c.cut[old.name], c.ended = false, "" })
	old.start()
	c.rejoined(t)
}

// silent has commits wait for a replica, and then nothing be heard of the primary, which still holds the Lease for long:
// the replicas need not wait for the Lease's end, because nobody can acknowledge a commit any more once they left it.
func (c *trio) silent(t *testing.T) {
	c.config.LeaseDurationSeconds, c.config.SuspicionMillis = 6, 1500
	c.config.Synchronous = &contract.Synchronous{Number: 1, Required: true}
	c.setConfig(t, c.config)
	old := c.holder()
	c.await(t, 30*time.Second, "the Lease has the quorum", func() bool {
		return c.lease.Sync.Required && c.lease.Sync.Synchronous()
	})
	c.config.LeaseDurationSeconds = 60
	c.setConfig(t, c.config)
	c.await(t, 30*time.Second, "the Lease is long", func() bool { return c.lease.Duration == time.Minute })
	// Their agents heard of the primary in its term; that makes its silence mean something.
	for _, h := range c.hosts {
		eventually(t, 10*time.Second, h.name+" has the rules", func() bool {
			got, err := h.sql("postgres", "SHOW synchronous_standby_names")
			return err == nil && got != ""
		})
	}
	c.written++
	if got := commit(t, old, c.written); got != nil {
		t.Fatal(got)
	}
	c.do(func() { c.cut[old.name] = true })
	frozen := freeze(t, old)
	// Either of the others may have it alone.
	missing := c.hosts[0]
	if missing == old {
		missing = c.hosts[1]
	}
	missing.halt()
	c.awaitReason(t, contract.WaitingForQuorum, missing.name+" does not answer")
	waited := time.Now()
	missing.start()
	next := c.awaitSuccessor(t, old)
	c.explained(t, old, next, contract.CausePrimarySilent)
	if detected := c.pod(next.name).report.LastFailover.Detected; next != missing && detected.After(waited) {
		t.Errorf("was detected %s after the first attempt had failed", detected.Sub(waited))
	}
	if lost := c.pod(next.name).report.LastFailover.LostBytes; lost == nil || *lost != 0 {
		t.Errorf("reports %v bytes lost", lost)
	}
	for _, pid := range frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // The agent may have ended it.
	}
	if err := commit(t, old, 1000); err == nil {
		t.Error("the former primary acknowledged a commit")
	}
	c.do(func() { c.cut[old.name] = false })
	c.rejoined(t)
}

// commit writes a row as an application does, and waits until it is acknowledged, or for a while.
func commit(t *testing.T, h *host, n int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	conn, err := h.app(ctx, "app", usable(map[string]string{"default_transaction_read_only": "off"}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(ctx, fmt.Sprintf("INSERT INTO public.note VALUES (%d)", n))
	return err
}

// freeze stops a host's PostgreSQL as it is, and returns its processes.
func freeze(t *testing.T, h *host) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range paths {
		if cwd, err := os.Readlink(path); err != nil || cwd != h.pgdata() {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
