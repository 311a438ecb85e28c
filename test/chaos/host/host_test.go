package host

import "testing"

func TestParseStatus(t *testing.T) {
	parent, inner := parseStatus("Name:\tpostgres\nPPid:\t412\nNSpid:\t431\t17\nThreads:\t1\n")
	if parent != 412 || inner != 17 {
		t.Errorf("parent %d and inner pid %d, want 412 and 17", parent, inner)
	}
}

func TestIsPostgres(t *testing.T) {
	for title, want := range map[string]bool{
		"postgres -D /var/lib/postgresql/data/pgdata":                 true,
		"/usr/lib/postgresql/17/bin/postgres -D /data":                true,
		"postgres: walreceiver streaming 0/3000148":                   true,
		"/agent/pg-operator instance run --cluster postgres":          false,
		"/agent/pg-operator instance sentinel postgres: walreceiver ": false,
	} {
		if got := isPostgres(title); got != want {
			t.Errorf("%q: %v, want %v", title, got, want)
		}
	}
}

func TestRole(t *testing.T) {
	for title, want := range map[string]string{
		"postgres: walreceiver streaming 0/3000148":        "walreceiver streaming 0/3000148",
		"postgres: db-1: walreceiver streaming 0/3000148":  "walreceiver streaming 0/3000148",
		"postgres: db-0: app app 10.0.0.1(4242) idle":      "app app 10.0.0.1(4242) idle",
		"postgres -D /var/lib/postgresql/data/pgdata":      "",
		"/agent/pg-operator instance sentinel postgres: x": "",
	} {
		if got := role(title); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}
