package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestParameters changes settings: some at once, some by a restart in order,
// some not at all.
func TestParameters(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	db := newDatabase(t, cluster, "settings", replicas(2))
	db.awaitReady(readyTimeout)
	l := db.write()

	t.Run("by a reload", func(t *testing.T) {
		d := db.in(t)
		pods, started := d.podsAndRestarts(2), d.startTimes()
		d.mustPatchSpec(map[string]any{"parameters": map[string]string{"work_mem": "7MB"}})
		d.awaitReady(readyTimeout)
		d.awaitSetting(0, "work_mem", "7MB")
		d.awaitSetting(1, "work_mem", "7MB")
		if d.podsAndRestarts(2) != pods || !slices.Equal(d.startTimes(), started) {
			t.Error("a setting that needs no restart restarted something")
		}
	})

	t.Run("by restarts, replicas first", func(t *testing.T) {
		d := db.in(t)
		before := d.startTimes()
		d.mustPatchSpec(map[string]any{"parameters": map[string]string{"max_connections": "50"}})
		d.awaitSetting(0, "max_connections", "50")
		d.awaitSetting(1, "max_connections", "50")
		d.awaitReady(readyTimeout)
		after := d.startTimes()
		if after[0] == before[0] || after[1] == before[1] {
			t.Fatalf("not restarted: started at %v, before %v", after, before)
		}
		if after[1] > after[0] {
			t.Errorf("the primary restarted at %s, before its replica at %s", after[0], after[1])
		}
		d.awaitStreaming(1, 30*time.Second)
	})

	t.Run("client authentication, by a reload", func(t *testing.T) { checkHBA(db.in(t)) })

	t.Run("refused by PostgreSQL", func(t *testing.T) {
		d := db.in(t)
		// Only the server knows which files of abbreviations it has, so admission cannot refuse this.
		d.mustPatchSpec(map[string]any{"parameters": map[string]string{"timezone_abbreviations": "nowhere", "work_mem": "9MB"}})
		eventually(t, 30*time.Second, "a condition that names the refused setting", func(ctx context.Context) (bool, string) {
			object := &v1alpha1.PostgresCluster{}
			if err := cluster.Client.Get(ctx, d.key(string(d.Cluster)), object); err != nil {
				return false, err.Error()
			}
			for _, condition := range object.Status.Conditions {
				if strings.Contains(condition.Message, "timezone_abbreviations") {
					return true, ""
				}
			}
			return false, fmt.Sprint(object.Status.Conditions)
		})
		d.awaitSetting(0, "work_mem", "9MB")
		d.awaitSetting(1, "work_mem", "9MB")
		d.replacePod(1) // the refused value must not keep an instance from starting
		d.awaitStreaming(1, readyTimeout)
		d.mustPatchSpec(map[string]any{"parameters": map[string]any{"timezone_abbreviations": nil}})
		d.awaitReady(readyTimeout)
	})
	db.awaitWrites(l, 30*time.Second)
	db.verify(l)
}

// checkHBA lets a role in and keeps it out with lines of pg_hba.conf, while the application goes on.
func checkHBA(d *database) {
	const password = "only for this test"
	d.mustAsk(d.mustPrimary(), "create role reports login password '"+password+"'")
	reports, super := d.config(d.ServiceReadWrite()), d.config(d.ServiceReadWrite())
	reports.User, reports.Password = "reports", password
	secret := &corev1.Secret{}
	d.get(d.SecretSuperuser(), secret)
	super.User, super.Password = naming.UserSuperuser, string(secret.Data[corev1.BasicAuthPasswordKey])
	pods, started := d.podsAndRestarts(2), d.startTimes()
	for _, step := range []struct {
		lines          []string
		reports, super bool
	}{
		{[]string{"hostssl all /^rep.*s$ all reject"}, false, false},
		{[]string{"hostssl app reports all scram-sha-256", "hostssl all +reports all reject"}, true, false},
		{[]string{"hostssl all reports 192.0.2.0/24 scram-sha-256", "hostssl all reports all reject", "hostssl all postgres all scram-sha-256"}, false, true},
	} {
		d.mustPatchSpec(map[string]any{"hba": step.lines})
		d.awaitLogin(reports, step.reports)
		d.awaitLogin(super, step.super)
	}
	if err := d.patchSpec(map[string]any{"hba": []string{"host all all all trust"}}); err == nil || !strings.Contains(err.Error(), "must begin with hostssl") {
		d.t.Errorf("a line without TLS: %v", err)
	}
	d.mustPatchSpec(map[string]any{"hba": nil})
	d.awaitLogin(reports, true)
	d.awaitLogin(super, false)
	d.awaitReady(readyTimeout)
	if d.podsAndRestarts(2) != pods || !slices.Equal(d.startTimes(), started) {
		d.t.Error("lines of client authentication restarted something")
	}
}

// awaitLogin waits until a role is let in, or rejected by a line of pg_hba.conf.
func (d *database) awaitLogin(config *pgx.ConnConfig, want bool) {
	d.t.Helper()
	eventually(d.t, readyTimeout, fmt.Sprintf("%s is let in: %t", config.User, want), func(ctx context.Context) (bool, string) {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			return want, fmt.Sprint("let in; ", conn.Close(ctx))
		}
		var refusal *pgconn.PgError
		return !want && errors.As(err, &refusal) && refusal.Code == "28000", err.Error()
	})
}

// awaitSetting waits until a setting is in force on an instance.
func (d *database) awaitSetting(ordinal int32, name, want string) {
	d.t.Helper()
	eventually(d.t, readyTimeout, fmt.Sprintf("%s is %s on %s", name, want, d.Instance(ordinal)), func(ctx context.Context) (bool, string) {
		got, err := d.ask(ctx, ordinal, "show "+name)
		if err != nil {
			return false, err.Error()
		}
		return got == want, got
	})
}

// startTimes are when the servers of both instances started, in a form that sorts.
func (d *database) startTimes() []string {
	d.t.Helper()
	const query = "select to_char(pg_postmaster_start_time() at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
	return []string{d.mustAsk(0, query), d.mustAsk(1, query)}
}

// TestPaused changes a paused cluster and wants nothing to happen until it goes on.
func TestPaused(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "paused", nil)
	d.awaitReady(readyTimeout)
	d.mustPatchSpec(map[string]any{"paused": true})
	d.awaitPaused()
	set := d.statefulSet()
	d.mustPatchSpec(map[string]any{"replicas": 2, "parameters": map[string]string{"work_mem": "7MB"}})
	d.awaitPaused() // the status is of the changed spec: the operator has seen it and has done nothing
	if live := d.statefulSet(); live.Generation != set.Generation || live.UID != set.UID {
		t.Errorf("the StatefulSet of a paused cluster went from generation %d to %d", set.Generation, live.Generation)
	}
	d.execSQL("create table goes_on ()")
	d.mustPatchSpec(map[string]any{"paused": false})
	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, 30*time.Second)
	d.awaitSetting(0, "work_mem", "7MB")
}

// awaitPaused waits for the condition Paused of the present spec.
func (d *database) awaitPaused() {
	d.t.Helper()
	eventually(d.t, conditionTimeout, "the condition Paused", func(ctx context.Context) (bool, string) {
		object := &v1alpha1.PostgresCluster{}
		if err := d.cluster.Client.Get(ctx, d.key(string(d.Cluster)), object); err != nil {
			return false, err.Error()
		}
		paused, seen := condition(object, v1alpha1.ConditionPaused)
		return paused.Status == "True" && paused.ObservedGeneration == object.Generation, seen
	})
}
