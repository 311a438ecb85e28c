package runner_test

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/peer"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/authority"
)

// votes is the life of a primary and a replica of which a candidate asks votes, in steps that build on each other.
type votes struct {
	*world
	a, b   *host
	config contract.Config
	client *peer.Client
	// term is the Lease's, database what the cluster is.
	term     int32
	database string
}

// TestVotes asks agents with a real PostgreSQL each, over TLS, and looks at what they do.
func TestVotes(t *testing.T) {
	major, here := withPostgres(t)
	if !here {
		return
	}
	w, signer := newWorld(), authority.New(t)
	v := &votes{world: w, a: newHost(t, w, signer, 0), b: newHost(t, w, signer, 1)}
	keys := pg.Loaded{Keys: v.a.clientKeys()}
	v.client = peer.New(peer.Options{Identity: keys.Load, Address: w.agentAddress, ServerName: func(instance string) string {
		return cluster.InstanceHost(instance, namespace)
	}})
	t.Cleanup(v.client.Close)
	v.config = config(major, 3, nil)
	v.config.FailoverEnabled, v.config.SuspicionMillis, v.config.LeaseDurationSeconds = true, 1000, 60
	t.Cleanup(func() { v.mayReaffirm(true) })
	w.setConfig(t, v.config)
	v.a.start()
	w.await(t, 20*time.Second, "the primary runs", w.runs(v.a.name, primaryRole))
	v.b.start()
	w.await(t, 20*time.Second, "the replica streams", w.runs(v.b.name, replicaRole))
	v.term, v.database = w.leaseNow().Term, w.pod(v.a.name).report.SystemID
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"heartbeats", v.heartbeats},
		{"refusals", v.refusals},
		{"a probe", v.probe},
		{"a hold", v.hold},
		{"a vote", v.vote},
		{"after a vote", v.afterVote},
		{"settings of a detached replica", v.settings},
		{"an agent that restarts", v.restart},
		{"a new term", v.newTerm},
		{"a query in the way", v.conflict},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			v.a.t, v.b.t = t, t
			step.run(t)
		}) {
			break
		}
	}
	v.a.t, v.b.t = t, t
}

// mayReaffirm lets the primary take the Lease anew, which it does once a member promised to follow it no more; without
// the API server it cannot.
func (v *votes) mayReaffirm(may bool) { v.do(func() { v.cut[v.a.name] = !may }) }

// request is that of the third member, which never answers itself.
func (v *votes) request(free bool) election.VoteRequest {
	return election.VoteRequest{Candidate: cluster.Instance(2), SystemID: v.database, Term: v.term, Free: free}
}

func (v *votes) ask(t *testing.T, h *host, q election.VoteRequest) election.Vote {
	t.Helper()
	vote, err := v.client.Vote(t.Context(), h.name, q)
	if err != nil {
		t.Fatal(err)
	}
	return vote
}

// receivers is how many processes of the replica receive log.
func (v *votes) receivers() string {
	return v.b.mustSQL("postgres", "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walreceiver'")
}

// flushed is how far the primary's log is on its disk.
func (v *votes) flushed(t *testing.T) postgres.LSN {
	t.Helper()
	lsn, err := postgres.ParseLSN(v.a.mustSQL("postgres", "SELECT pg_current_wal_flush_lsn()"))
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

func (v *votes) heartbeats(t *testing.T) {
	beat := func(h *host) contract.Heartbeat {
		got, err := v.client.Heartbeat(t.Context(), h.name, cluster.Instance(2), 0)
		if err != nil {
			t.Fatal(err)
		}
		got.Kept = nil
		return got
	}
	if got := beat(v.a); !reflect.DeepEqual(got, contract.Heartbeat{Instance: v.a.name, Term: v.term, Leading: true, Healthy: true}) {
		t.Errorf("the primary says %+v", got)
	}
	if got := beat(v.b); !reflect.DeepEqual(got, contract.Heartbeat{Instance: v.b.name, Term: v.term, Healthy: true}) {
		t.Errorf("the replica says %+v", got)
	}
}

func (v *votes) refusals(t *testing.T) {
	foreign, stranger, over := v.request(true), v.request(true), v.request(true)
	foreign.SystemID, stranger.Candidate, over.Term = "7300000000000000001", "billing-db-0", v.term-1
	for name, test := range map[string]struct {
		host    *host
		request election.VoteRequest
		refusal string
	}{
		"another database": {v.b, foreign, "has the database " + v.database},
		"a stranger":       {v.b, stranger, "no member"},
		"an old term":      {v.b, over, "is over"},
		"the primary":      {v.a, v.request(true), "leads itself"},
	} {
		vote := v.ask(t, test.host, test.request)
		if vote.Granted || !strings.Contains(vote.Refusal, test.refusal) || vote.Promised != 0 || vote.Detached {
			t.Errorf("%s: %+v, want a refusal: %s", name, vote, test.refusal)
		}
	}
	eventually(t, 5*time.Second, "the replica hears the primary", func() bool {
		return strings.Contains(v.ask(t, v.b, v.request(false)).Refusal, "still hears the primary")
	})
	if v.receivers() != "1" {
		t.Error("the replica does not stream after refusals")
	}
}

func (v *votes) probe(t *testing.T) {
	probe := v.request(true)
	probe.Probe = true
	vote := v.ask(t, v.b, probe)
	if !vote.Granted || vote.Detached || vote.Promised != 0 || vote.Received == 0 || vote.Timeline != 1 || v.receivers() != "1" {
		t.Errorf("probe: %+v, receivers %s", vote, v.receivers())
	}
}

func (v *votes) hold(t *testing.T) {
	holder := v.leaseNow().Holder
	ask := func(q election.HoldRequest) election.HoldAnswer {
		answer, err := v.client.Promise(t.Context(), v.b.name, q)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if answer := ask(election.HoldRequest{Holder: "billing-db-0_x", Term: v.term, Duration: time.Second}); answer.Granted {
		t.Error("a stranger is promised to")
	}
	const held = 500 * time.Millisecond
	begun := time.Now()
	if answer := ask(election.HoldRequest{Holder: holder, Term: v.term, Duration: held}); !answer.Granted {
		t.Fatalf("hold: %+v", answer)
	}
	if vote := v.ask(t, v.b, v.request(true)); time.Since(begun) < held && (vote.Granted || !strings.Contains(vote.Refusal, "promised")) {
		t.Errorf("votes in spite of its promise to the holder: %+v", vote)
	}
	eventually(t, 5*time.Second, "the promise to the holder ends", func() bool {
		probe := v.request(true)
		probe.Probe = true
		return v.ask(t, v.b, probe).Granted
	})
	if time.Since(begun) < held {
		t.Error("the promise to the holder ended early")
	}
}

func (v *votes) vote(t *testing.T) {
	v.mayReaffirm(false)
	written := v.flushed(t)
	eventually(t, 5*time.Second, "the replica has what the primary wrote", func() bool {
		return v.b.mustSQL("postgres", "SELECT pg_last_wal_receive_lsn() >= '"+written.String()+"'") == "t"
	})
	vote := v.ask(t, v.b, v.request(true))
	if !vote.Granted || !vote.Detached || !vote.Complete || vote.Promised != v.term || vote.Received < written || vote.Timeline != 1 {
		t.Fatalf("vote: %+v, the primary has %s", vote, written)
	}
	if v.receivers() != "0" {
		t.Error("a replica that voted receives log")
	}
	if promised := v.onDisk(t); promised != v.term {
		t.Errorf("the disk has a promise of term %d, want %d", promised, v.term)
	}
}

// onDisk is what a later agent on the replica's volume will have promised.
func (v *votes) onDisk(t *testing.T) int32 {
	t.Helper()
	content, err := os.ReadFile(pg.Volume{Root: v.b.path("data")}.StateFile())
	if err != nil {
		t.Fatal(err)
	}
	var memory struct{ Promised int32 }
	if err := json.Unmarshal(content, &memory); err != nil {
		t.Fatal(err)
	}
	return memory.Promised
}

// afterVote: what the old primary writes from now on does not reach the replica, and a vote stays what it was.
func (v *votes) afterVote(t *testing.T) {
	before := v.ask(t, v.b, v.request(true))
	v.a.mustSQL("app", "CREATE TABLE public.late AS SELECT 1 AS a")
	after := v.ask(t, v.b, v.request(true))
	if !after.Granted || !after.Detached || after != before {
		t.Errorf("asked again: %+v, before %+v", after, before)
	}
	if v.flushed(t) <= after.Received {
		t.Error("the primary wrote nothing")
	}
	holder := v.leaseNow().Holder
	if answer, err := v.client.Promise(t.Context(), v.b.name, election.HoldRequest{Holder: holder, Term: v.term, Duration: time.Second}); err != nil || answer.Granted {
		t.Errorf("promises the holder of a term that it gave up: %+v %v", answer, err)
	}
}

// settings: to configure a detached replica does not attach it again.
func (v *votes) settings(t *testing.T) {
	major := v.config.Version
	for n := range 3 {
		size := strconv.Itoa(5+n) + "MB"
		v.config.Parameters = postgres.Settings(major, map[string]string{"work_mem": size})
		v.config.SettingsHash = postgres.SettingsHash(v.config.Parameters, v.config.HBA)
		v.setConfig(t, v.config)
		v.await(t, 10*time.Second, "the replica has the settings", func() bool {
			return v.pods[v.b.name].report.SettingsHash == v.config.SettingsHash
		})
		if got := v.b.mustSQL("postgres", "SHOW work_mem"); got != size {
			t.Errorf("work_mem is %s, want %s", got, size)
		}
		if vote := v.ask(t, v.b, v.request(true)); !vote.Granted || v.receivers() != "0" {
			t.Errorf("after new settings: %+v, receivers %s", vote, v.receivers())
		}
	}
}

// restart: also a later agent keeps the promise.
func (v *votes) restart(t *testing.T) {
	v.b.halt()
	v.b.start()
	eventually(t, 20*time.Second, "the replica votes again", func() bool {
		vote, err := v.client.Vote(t.Context(), v.b.name, v.request(true))
		return err == nil && vote.Granted && vote.Promised == v.term && vote.Detached
	})
	if late := v.b.mustSQL("app", "SELECT count(*) FROM pg_class WHERE relname = 'late'"); late != "0" || v.receivers() != "0" {
		t.Errorf("after a restart: %s tables of the old primary, receivers %s", late, v.receivers())
	}
}

// newTerm: once the holder has taken the Lease anew, it is followed again.
func (v *votes) newTerm(t *testing.T) {
	v.mayReaffirm(true)
	v.await(t, 20*time.Second, "the primary takes the Lease anew", func() bool { return v.lease.Term > v.term })
	v.await(t, 20*time.Second, "the replica streams again", v.runs(v.b.name, naming.RoleReplica))
	eventually(t, 5*time.Second, "what was written meanwhile arrives", func() bool {
		return v.b.mustSQL("app", "SELECT count(*) FROM pg_class WHERE relname = 'late'") == "1"
	})
	if vote := v.ask(t, v.b, v.request(true)); vote.Granted || !strings.Contains(vote.Refusal, "is over") {
		t.Errorf("a vote against the term before: %+v", vote)
	}
}

// conflict: while a query keeps log from being applied, the process that applies it listens to nobody, but the instance
// parts from its primary all the same.
func (v *votes) conflict(t *testing.T) {
	v.term = v.leaseNow().Term
	v.mayReaffirm(false)
	v.a.mustSQL("app", "CREATE TABLE public.busy AS SELECT generate_series(1, 1000) AS a")
	eventually(t, 5*time.Second, "the replica has the table", func() bool {
		count, err := v.b.sql("app", "SELECT count(*) FROM public.busy")
		return err == nil && count == "1000"
	})
	conn, err := pg.Server{RunDir: v.b.path("run"), Port: v.b.port}.Connect(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err = conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM public.busy"); err != nil {
		t.Fatal(err)
	}
	v.a.mustSQL("app", "DELETE FROM public.busy")
	v.a.mustSQL("app", "VACUUM public.busy")
	written := v.flushed(t)
	stuck := "SELECT pg_last_wal_receive_lsn() >= '" + written.String() + "' AND pg_last_wal_replay_lsn() < '" + written.String() + "'"
	eventually(t, 5*time.Second, "the query is in the way", func() bool { return v.b.mustSQL("postgres", stuck) == "t" })
	vote := v.ask(t, v.b, v.request(true))
	if !vote.Granted || !vote.Detached || vote.Received < written || v.receivers() != "0" {
		t.Errorf("vote: %+v, the primary has %s, receivers %s", vote, written, v.receivers())
	}
	if v.b.mustSQL("postgres", stuck) != "t" {
		t.Error("the query is not in the way any more")
	}
	if _, err = conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "all is applied", func() bool { return v.b.mustSQL("postgres", stuck) == "f" })
	if again := v.ask(t, v.b, v.request(true)); !again.Granted || again.Received != vote.Received || v.receivers() != "0" {
		t.Errorf("after the query: %+v, before %+v, receivers %s", again, vote, v.receivers())
	}
}
