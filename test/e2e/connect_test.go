package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/test/ledger"
)

// credentials are what an application reads from the Secret <cluster>-app.
func (d *database) credentials() map[string]string {
	d.t.Helper()
	secret := &corev1.Secret{}
	d.get(d.SecretApp(), secret)
	values := map[string]string{}
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values
}

// config connects as an application does to one of the database's Services.
func (d *database) config(service string) *pgx.ConnConfig {
	d.t.Helper()
	config, err := d.cluster.Application(d.t.Context(), d.key(string(d.Cluster)), service)
	if err != nil {
		d.t.Fatal(err)
	}
	return config
}

// connect opens a connection as the application, waiting for the Service to lead somewhere.
func (d *database) connect(service string) *pgx.Conn {
	d.t.Helper()
	var conn *pgx.Conn
	config := d.config(service)
	eventually(d.t, 30*time.Second, "a connection through "+service, func(ctx context.Context) (bool, string) {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have been broken by the test
	return conn
}

// execSQL runs a statement as the application through -rw.
func (d *database) execSQL(statement string) {
	d.t.Helper()
	if _, err := d.connect(d.ServiceReadWrite()).Exec(d.t.Context(), statement); err != nil {
		d.t.Fatalf("%s: %v", statement, err)
	}
}

// count of a table's rows as a Service's reader sees it, once it has at least want rows.
func (d *database) awaitRows(service, table string, want int) {
	d.t.Helper()
	conn := d.connect(service)
	eventually(d.t, 15*time.Second, fmt.Sprintf("%d rows in %s through %s", want, table, service), func(ctx context.Context) (bool, string) {
		var got int
		if err := conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{table}.Sanitize()).Scan(&got); err != nil {
			return false, err.Error()
		}
		return got == want, fmt.Sprintf("%d rows", got)
	})
}

// write starts a ledger that writes through -rw until the test checks it or ends.
func (d *database) write() *ledger.Ledger {
	d.t.Helper()
	l, err := ledger.Start(context.Background(), ledger.Postgres(d.config(d.ServiceReadWrite())))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(l.Stop)
	return l
}

// awaitWrites waits until writes are acknowledged again.
func (d *database) awaitWrites(l *ledger.Ledger, timeout time.Duration) {
	d.t.Helper()
	before, _ := l.Acknowledged()
	eventually(d.t, timeout, "20 more writes through "+d.ServiceReadWrite(), func(context.Context) (bool, string) {
		now, err := l.Acknowledged()
		return now >= before+20, fmt.Sprintf("%d more; last error: %v", now-before, err)
	})
}

// verify stops the ledger and checks that no acknowledged write is lost.
func (d *database) verify(l *ledger.Ledger) {
	d.t.Helper()
	l.Stop()
	if err := l.Verify(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	writes, _ := l.Acknowledged()
	d.t.Logf("%d acknowledged writes are all there, longest gap %s", writes, l.LongestGap().Round(time.Millisecond))
}
