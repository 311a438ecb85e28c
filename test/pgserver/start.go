package pgserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/acme/pg-operator/postgres"
)

// own are settings of a server that nobody reaches and that loses nothing worth keeping.
const own = `-c ssl=off -c fsync=off -c listen_addresses= -c unix_socket_directories=$PWD -c log_destination=stderr`

// Start tries to start the server with each of the configuration files, first as a primary and then as a standby. It
// returns for each file the log of the start that failed; empty if both succeeded.
func (s Server) Start(ctx context.Context, files []map[string]string) ([]string, error) {
	const mark = "== "
	content := map[string]string{}
	for i, file := range files {
		content[fmt.Sprintf("%06d/postgresql.conf", i)] = postgres.RenderConf(file)
	}
	out, err := s.inScratch(ctx, content, `
initdb --no-sync --no-instructions -A trust -U postgres --locale=C --encoding=UTF8 -D data >initdb.log 2>&1 || { cat initdb.log; exit 1; }
try() {
	rm -f log
	if pg_ctl start -w -t 60 -D data -l log -o "`+own+`" >/dev/null 2>&1; then
		sleep 0.1
		pg_ctl stop -w -m fast -D data >/dev/null 2>&1 || { echo "stopped by itself"; cat log; rm -f data/postmaster.pid; }
	else
		echo "did not start"; cat log; pg_ctl stop -w -m immediate -D data >/dev/null 2>&1 || true
	fi
}
for dir in [0-9]*; do
	echo "`+mark+`$dir"
	cp $dir/postgresql.conf data/postgresql.conf
	try
	touch data/standby.signal
	try
	rm data/standby.signal
done`)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL %s: %w", s.Version.Full, err)
	}
	parts := strings.Split("\n"+out, "\n"+mark)[1:]
	if len(parts) != len(files) {
		return nil, fmt.Errorf("PostgreSQL %s answered %d of %d files: %s", s.Version.Full, len(parts), len(files), out)
	}
	for i, part := range parts {
		_, parts[i], _ = strings.Cut(part, "\n")
	}
	return parts, nil
}
