package e2e

import (
	"context"
	"crypto/tls"
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
)

// seedManifest is the manifest that every version of the operator must take unchanged.
const seedManifest = `
apiVersion: db.example.com/v1alpha1
kind: PostgresCluster
metadata: {name: orders-db, namespace: %s}
spec: {replicas: 3, version: "%s", storage: 20Gi}
`

// TestSeed follows a user from the seed manifest to a working, closed database.
func TestSeed(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	d := &database{t: t, cluster: cluster, namespace: cluster.Namespace(t, "shop"), Cluster: "orders-db"}
	manifest := fmt.Sprintf(seedManifest, d.namespace, seedVersion(t))
	if _, err := cluster.KubectlInput(t.Context(), manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Logf("Ready after %s", d.awaitReady(3*time.Minute).Round(100*time.Millisecond))
	d.awaitStreaming(2, 15*time.Second)

	for name, check := range map[string]func(*database){
		"columns":      checkColumns,
		"one database": checkOneDatabase,
		"read write":   checkReadWrite,
		"closed":       checkClosed,
		"replication":  checkReplicationByCertificate,
		"pod security": checkPodSecurity,
		"agent rights": checkAgentRights,
	} {
		t.Run(name, func(t *testing.T) {
			check(d.in(t))
		})
	}
}

func checkColumns(d *database) {
	lines := strings.Split(strings.TrimSpace(d.kubectl("get", "pgc")), "\n")
	if len(lines) != 2 {
		d.t.Fatalf("want a heading and one line, got %q", lines)
	}
	want := []string{"NAME", "REPLICAS", "READY", "VERSION", "STORAGE", "PRIMARY", "STATUS", "AGE"}
	if got := strings.Fields(lines[0]); !slices.Equal(got, want) {
		d.t.Errorf("columns %v, want %v", got, want)
	}
	version := d.object().Spec.Version
	want = []string{"orders-db", "3", "3", version, "20Gi", "orders-db-0", "AllReplicasReady"}
	if got := strings.Fields(lines[1]); len(got) != 8 || !slices.Equal(got[:7], want) {
		d.t.Errorf("values %v, want %v and an age", got, want)
	}
}

// checkOneDatabase proves that three instances are one database, not three.
func checkOneDatabase(d *database) {
	var ids []string
	for ordinal := range int32(3) {
		ids = append(ids, d.mustAsk(ordinal, "select system_identifier from pg_control_system()"))
	}
	if ids[0] == "" || ids[1] != ids[0] || ids[2] != ids[0] {
		d.t.Errorf("system identifiers %q, want three times the same", ids)
	}
	if got := d.object().Status.SystemID; got != ids[0] {
		d.t.Errorf("status.systemID %q, want %q", got, ids[0])
	}
	streams := d.mustAsk(0, `select r.state, s.ssl, r.usename from pg_stat_replication r join pg_stat_ssl s using (pid)`)
	want := strings.Join([]string{"streaming|t|" + naming.UserReplication, "streaming|t|" + naming.UserReplication}, "\n")
	if streams != want {
		d.t.Errorf("replication %q, want %q", streams, want)
	}
	for ordinal, recovery := range map[int32]string{0: "f", 1: "t", 2: "t"} {
		if got := d.mustAsk(ordinal, "select pg_is_in_recovery()"); got != recovery {
			d.t.Errorf("pg_is_in_recovery() on %s is %s, want %s", d.Instance(ordinal), got, recovery)
		}
	}
	if got := d.mustAsk(0, "show data_checksums"); got != "on" {
		d.t.Errorf("data_checksums is %s, want on", got)
	}
}

func checkReadWrite(d *database) {
	d.execSQL("create table orders (id int primary key)")
	d.execSQL("insert into orders select generate_series(1, 1000)")
	d.awaitRows(d.ServiceReadWrite(), "orders", 1000)
	d.awaitRows(d.ServiceReadOnly(), "orders", 1000)
	d.awaitRows(d.ServiceRead(), "orders", 1000)
	_, err := d.connect(d.ServiceReadOnly()).Exec(d.t.Context(), "insert into orders values (0)")
	wantCode(d.t, "a write through -ro", err, "25006") // read_only_sql_transaction
	conn := d.connect(d.ServiceReadWrite())
	var super bool
	if err := conn.QueryRow(d.t.Context(), "select rolsuper from pg_roles where rolname = current_user").Scan(&super); err != nil || super {
		d.t.Errorf("the application's role: superuser %t, %v; want no superuser", super, err)
	}
	uri := d.credentials()["uri"]
	if config, err := pgx.ParseConfig(uri); err != nil || config.Host == "" || config.Database != naming.DatabaseApp {
		d.t.Errorf("the Secret's uri does not parse as one of %s: %v", naming.DatabaseApp, err)
	}
}

// checkClosed proves that nobody gets in without TLS and the right password.
func checkClosed(d *database) {
	service := d.ServiceReadWrite()
	plaintext := d.config(service)
	plaintext.TLSConfig = nil
	wantRefused(d, "a connection without TLS", plaintext, "28000")

	wrong := d.config(service)
	wrong.Password = "not-" + wrong.Password
	wantRefused(d, "a wrong password", wrong, "28P01")

	super := d.config(service)
	secret := &corev1.Secret{}
	d.get(d.SecretSuperuser(), secret)
	super.User, super.Password, super.Database = naming.UserSuperuser, string(secret.Data[corev1.BasicAuthPasswordKey]), "postgres"
	wantRefused(d, "the superuser over the network", super, "28000")

	untrusted := d.config(service)
	untrusted.TLSConfig = &tls.Config{ServerName: untrusted.Host, MinVersion: tls.VersionTLS12}
	if conn, err := pgx.ConnectConfig(d.t.Context(), untrusted); err == nil {
		_ = conn.Close(d.t.Context())
		d.t.Error("the server's certificate is trusted without the cluster's CA")
	}
}

func checkReplicationByCertificate(d *database) {
	service := d.ServiceReadWrite()
	password := d.config(service)
	password.RuntimeParams["replication"] = "true"
	wantRefused(d, "replication as the application", password, "28000")

	config := d.config(service)
	config.User = naming.UserReplication
	config.RuntimeParams["replication"] = "true"
	wantRefused(d, "replication without a client certificate", config, "28000", "28P01")

	secret := &corev1.Secret{}
	d.get(d.CertificateReplica(), secret)
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		d.t.Fatalf("the replication client's certificate: %v", err)
	}
	config.TLSConfig.Certificates = []tls.Certificate{pair}
	conn, err := pgconn.ConnectConfig(d.t.Context(), &config.Config)
	if err != nil {
		d.t.Fatalf("replication with the client certificate: %v", err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	results, err := conn.Exec(d.t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	if err != nil || len(results) != 1 || string(results[0].Rows[0][0]) != d.object().Status.SystemID {
		d.t.Errorf("IDENTIFY_SYSTEM with the client certificate: %v, %v", results, err)
	}
}

// wantRefused connects and wants one of the given SQLSTATEs.
func wantRefused(d *database, what string, config *pgx.ConnConfig, codes ...string) {
	d.t.Helper()
	conn, err := pgx.ConnectConfig(d.t.Context(), config)
	if err == nil {
		_ = conn.Close(d.t.Context())
	}
	wantCode(d.t, what, err, codes...)
}

func wantCode(t *testing.T, what string, err error, codes ...string) {
	t.Helper()
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || !slices.Contains(codes, refusal.Code) {
		t.Errorf("%s: got %v, want SQLSTATE %v", what, err, codes)
	}
}
