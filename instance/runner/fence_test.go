package runner_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/fence"
	"github.com/acme/pg-operator/instance/lease"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/test/authority"
)

// watchtower is a primary that is told of more members than there are, and looked at from outside.
type watchtower struct {
	*world
	a      *host
	config contract.Config
}

func newWatchtower(t *testing.T, members int32) *watchtower {
	t.Helper()
	programs, err := pg.FindPrograms(t.Context(), "")
	if err != nil {
		t.Skipf("no PostgreSQL to test with: %v", err)
	}
	w := newWorld()
	f := &watchtower{world: w, a: newHost(t, w, authority.New(t), 0)}
	f.config = config(programs.Version.Major, members, nil)
	f.setConfig(t, f.config)
	return f
}

// renewed waits until the Lease has a duration in seconds.
func (f *watchtower) renewed(t *testing.T, seconds, members int32) {
	t.Helper()
	f.config.LeaseDurationSeconds = seconds
	f.config.Members = config(f.config.Version, members, nil).Members
	f.setConfig(t, f.config)
	f.await(t, 10*time.Second, "the Lease has the new duration and members", func() bool {
		return f.lease.Duration == time.Duration(seconds)*time.Second && len(f.lease.Members) == int(members)
	})
}

// death waits for the end of a postmaster, and returns when it was.
func (f *watchtower) death(t *testing.T, pid int) time.Duration {
	t.Helper()
	eventually(t, 20*time.Second, "the primary is fenced", func() bool { return !exists(pid) })
	return fence.Now()
}

// writes waits until the primary takes writes again.
func (f *watchtower) writes(t *testing.T) {
	t.Helper()
	eventually(t, 20*time.Second, "the primary takes writes again", func() bool {
		_, err := f.a.sql("app", "INSERT INTO public.note VALUES ('kept')")
		return err == nil
	})
}

// exists tells whether a process runs; one that ended does not, also if nobody asked for its status yet.
func exists(pid int) bool {
	stat, err := processStat(pid)
	return err == nil && !strings.HasPrefix(stat, "Z")
}

// fencedInTime judges an end by the last renewal before it.
func fencedInTime(t *testing.T, renewal, end, duration time.Duration) {
	t.Helper()
	fencedBetween(t, renewal, end, duration-election.Margin(duration)-500*time.Millisecond, duration)
}

func fencedBetween(t *testing.T, renewal, end, earliest, duration time.Duration) {
	t.Helper()
	took := end - renewal
	if took < earliest || took > duration {
		t.Errorf("PostgreSQL ended %v after the last renewal, want %v to %v", took, earliest, duration)
	}
	t.Logf("PostgreSQL ended %v after the last renewal of a Lease of %v", took, duration)
}

// TestFence cuts a primary off from the API server, with and without others that may take its place.
func TestFence(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	f := newWatchtower(t, 1)
	f.config.LeaseDurationSeconds = 2
	f.setConfig(t, f.config)
	incarnation := f.a.start()
	f.await(t, 20*time.Second, "the primary runs", f.runs(f.a.name, primaryRole))
	pid := postmaster(t, f.a)

	// Alone, it goes on for ever: here for two durations of the Lease, six attempts to renew it in each.
	f.do(func() { f.down, f.refused = true, 0 })
	f.await(t, 20*time.Second, "renewals failed", func() bool { return f.refused >= 12 })
	f.a.mustSQL("app", "CREATE TABLE public.note (text text)")
	f.do(func() { f.down = false })
	f.renewed(t, 3, 3)
	if !exists(pid) {
		t.Error("the only instance was fenced")
	}

	// With others, it must not.
	f.do(func() { f.down, f.refused = true, 0 })
	fencedInTime(t, f.renewalNow(), f.death(t, pid), 3*time.Second)
	f.mu.Lock()
	refused := f.refused
	f.mu.Unlock()
	if refused < 2 {
		t.Errorf("tried only %d times to renew the Lease", refused)
	}
	if _, err := f.a.sql("postgres", "SELECT 1"); err == nil {
		t.Error("started again without a licence")
	}
	f.do(func() { f.down = false })
	f.writes(t)

	// A shorter duration counts from when it may have been written, also if no answer ever said so.
	f.renewed(t, 30, 3)
	pid = postmaster(t, f.a)
	f.config.LeaseDurationSeconds = 3
	f.do(func() { f.mute, f.renewal = true, 0 })
	f.setConfig(t, f.config)
	f.await(t, 10*time.Second, "the shorter duration is written", func() bool { return f.lease.Duration == 3*time.Second })
	fencedInTime(t, f.renewalNow(), f.death(t, pid), 3*time.Second)
	f.do(func() { f.mute = false })
	f.writes(t)
	if f.pod(f.a.name).report.Incarnation != incarnation {
		t.Error("the agent was restarted")
	}
}

// TestFrozenAgent stops an agent's process, so that only the sentinel can fence.
func TestFrozenAgent(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	f := newWatchtower(t, 3)
	agent := f.a.startProcess()
	f.await(t, 20*time.Second, "the primary runs", f.runs(f.a.name, primaryRole))
	pid := postmaster(t, f.a)
	term := f.leaseNow().Term
	if err := agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A renewal that was on its way when the signal was sent may still have been noted.
	eventually(t, 5*time.Second, "the agent is frozen", func() bool {
		stat, err := processStat(agent.Process.Pid)
		return err == nil && strings.HasPrefix(stat, "T")
	})
	// It may have been frozen before it got to know of the last renewal; the one before was a second earlier.
	fencedBetween(t, f.renewalNow(), f.death(t, pid), time.Second, 3*time.Second)
	// Another one takes over. The agent that comes to itself must not go on where it was.
	f.do(func() {
		f.lease.Holder, f.lease.Term, f.lease.Version = lease.Identity(cluster.Instance(1), "x"), term+1, "other"
	})
	if err := agent.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.await(t, 20*time.Second, "the former primary follows", func() bool {
		r := f.pods[f.a.name].report
		return r.Incarnation == "start1" && r.Term == term+1 && r.State == contract.StateWaiting
	})
	if log := f.a.output.String(); !strings.Contains(log, "The sentinel ended PostgreSQL") {
		t.Error("the log does not say who ended PostgreSQL")
	}
	if _, err := f.a.sql("postgres", "SELECT 1"); err == nil {
		t.Error("PostgreSQL was started again")
	}
}
