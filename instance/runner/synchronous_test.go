package runner_test

import (
	"context"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/test/authority"
)

// TestSynchronous follows what commits wait for, in the Lease and in PostgreSQL, while replicas come and go.
func TestSynchronous(t *testing.T) {
	major, here := withPostgres(t)
	if !here {
		return
	}
	w := newWorld()
	s := &story{world: w, authority: authority.New(t), major: major}
	s.a, s.b = newHost(t, w, s.authority, 0), newHost(t, w, s.authority, 1)
	c := newHost(t, w, s.authority, 2)
	s.config = config(s.major, 3, nil)
	s.config.Synchronous = &contract.Synchronous{Number: 1, Required: true}
	s.setConfig(t, s.config)
	s.a.start()
	s.await(t, 20*time.Second, "the primary runs", s.runs(s.a.name, primaryRole))
	inForce := func(names, record string) {
		t.Helper()
		s.await(t, 30*time.Second, "the Lease says "+record, func() bool { return s.lease.Sync.String() == record })
		if got := s.a.mustSQL("postgres", "SHOW synchronous_standby_names"); got != names {
			t.Errorf("commits wait for %s, want %s", got, names)
		}
	}
	// commits tells whether a commit is acknowledged in time.
	commits := func(within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		conn, err := pg.Server{RunDir: s.a.path("run"), Port: s.a.port}.Connect(ctx, "postgres")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err = conn.Exec(ctx, "SET synchronous_commit = on"); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS public.t (); INSERT INTO public.t DEFAULT VALUES")
		return err == nil
	}
	if got := s.leaseNow().Sync.String(); got != "required ANY 1 (orders-db-1,orders-db-2)" {
		t.Errorf("the Lease of a new cluster says %q", got)
	}
	if got := s.a.mustSQL("postgres", "SHOW synchronous_standby_names"); got != `ANY 1 ("orders-db-1","orders-db-2")` {
		t.Errorf("before there is a replica commits wait for %s", got)
	}
	if commits(time.Second) {
		t.Error("a commit is acknowledged that no replica has")
	}
	s.b.start()
	s.await(t, 30*time.Second, "the first replica streams", s.runs(s.b.name, replicaRole))
	inForce(`ANY 1 ("orders-db-1")`, "required ANY 1 (orders-db-1)")
	c.start()
	s.await(t, 30*time.Second, "the second replica streams", s.runs(c.name, replicaRole))
	inForce(`ANY 1 ("orders-db-1","orders-db-2")`, "required ANY 1 (orders-db-1,orders-db-2)")
	if got := s.pod(s.a.name).report.Synchronous; got == nil || got.Number != 1 || len(got.Standbys) != 2 {
		t.Errorf("reports %+v", got)
	}
	if got := s.b.mustSQL("postgres", "SHOW synchronous_standby_names"); got != `ANY 1 ("orders-db-0","orders-db-2")` {
		t.Errorf("a replica is prepared for %s", got)
	}
	s.b.halt()
	if !commits(5 * time.Second) {
		t.Error("commits wait though one of two replicas is there")
	}
	inForce(`ANY 1 ("orders-db-2")`, "required ANY 1 (orders-db-2)")
	s.config.Synchronous = &contract.Synchronous{Number: 1}
	s.setConfig(t, s.config)
	inForce(`ANY 1 ("orders-db-2")`, "preferred ANY 1 (orders-db-2)")
	c.halt()
	s.await(t, 10*time.Second, "the Lease says that commits wait for nobody", func() bool { return !s.lease.Sync.Synchronous() })
	if !commits(10 * time.Second) {
		t.Error("commits wait though that is only preferred, and no replica is there")
	}
	if got := s.a.mustSQL("postgres", "SHOW synchronous_standby_names"); got != "" {
		t.Errorf("commits wait for %s", got)
	}
}
