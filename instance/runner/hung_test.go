package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/contract"
)

// awaitUnwell has the primary write until a replica leaves the Services and says why.
func (s *story) awaitUnwell(t *testing.T, state contract.State, why string) {
	t.Helper()
	begun := time.Now()
	eventually(t, 40*time.Second, string(state)+": "+why, func() bool {
		s.a.mustSQL("app", "INSERT INTO public.note VALUES ('for a replica that is not well')")
		p := s.pod(s.b.name)
		return p.label == "" && p.report.State == state && strings.Contains(p.report.Message, why)
	})
	t.Logf("%s: %s after %v", state, why, time.Since(begun).Round(time.Millisecond))
	if code, _, err := s.b.get(s.b.probeURL+contract.PathReady, ""); err != nil || code != 503 {
		t.Errorf("ready: %d, %v", code, err)
	}
}

// held has somebody keep the replica from replaying, on purpose or by a query. That is told, and left to him.
func (s *story) held(t *testing.T) {
	pid := postmaster(t, s.b)
	s.b.mustSQL("postgres", "SELECT pg_wal_replay_pause()")
	s.awaitUnwell(t, contract.StateLagging, "pg_wal_replay_resume")
	s.b.mustSQL("postgres", "SELECT pg_wal_replay_resume()")
	s.await(t, 10*time.Second, "the replica keeps up again", s.runs(s.b.name, replicaRole))
	if postmaster(t, s.b) != pid {
		t.Error("a replica whose replay was paused was restarted")
	}
}

// hung has processes of a replica hang, one after the other.
func (s *story) hung(t *testing.T) {
	for _, hang := range []struct{ backend, why string }{
		{"startup", "replays the log hangs"}, {"walreceiver", "receives the log hangs"},
	} {
		old := postmaster(t, s.b)
		pid, err := strconv.Atoi(s.b.mustSQL("postgres", "SELECT pid FROM pg_stat_activity WHERE backend_type = '"+hang.backend+"'"))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s.awaitUnwell(t, contract.StateHung, hang.why)
		s.await(t, 20*time.Second, "the replica streams again", s.runs(s.b.name, replicaRole))
		if postmaster(t, s.b) == old {
			t.Error("the replica was not restarted")
		}
		s.replicates(t, hang.backend)
	}
	if log := s.b.output.String(); strings.Contains(log, "also after a restart") {
		t.Error("a replica that streams again after a restart was taken for one whose data is at fault")
	}
}

// freezeReplica has the replica's postmaster keep its sessions and let nobody in, also while the primary restarts.
func (s *story) freezeReplica(t *testing.T) {
	s.frozenReplica = postmaster(t, s.b)
	if err := syscall.Kill(s.frozenReplica, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// revived wants the replica to have found that out, and to stream again.
func (s *story) revived(t *testing.T) {
	eventually(t, 20*time.Second, "the replica has another postmaster", func() bool {
		content, err := os.ReadFile(filepath.Join(s.b.pgdata(), "postmaster.pid"))
		return err == nil && len(content) > 0 && !strings.HasPrefix(string(content), fmt.Sprintln(s.frozenReplica))
	})
	s.await(t, 20*time.Second, "the replica streams again", s.runs(s.b.name, replicaRole))
	s.replicates(t, "revived")
	if log := s.b.output.String(); !strings.Contains(log, "PostgreSQL hangs: it lets no new session in") {
		t.Error("the log does not say why it was restarted")
	}
}
