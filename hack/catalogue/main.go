// Command catalogue writes the catalogue of PostgreSQL's settings from real servers: those of the local cluster's
// images, one for each major version.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/pgserver"
)

func main() {
	launcher := flag.String("launcher", "bin/cluster", "the program that unpacks images")
	output := flag.String("output", "postgres/catalogue.tsv", "the file to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *launcher, *output); err != nil {
		fmt.Fprintf(os.Stderr, "catalogue: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, launcher, output string) error {
	majors := postgres.Majors()
	var versions []string
	found := map[string][]entry{}
	for _, major := range majors {
		server, err := pgserver.FromImage(ctx, launcher, major)
		if err != nil {
			return err
		}
		entries, err := read(ctx, server)
		if err != nil {
			return err
		}
		versions = append(versions, server.Version.Full)
		found[major] = entries
		fmt.Printf("PostgreSQL %s has %d settings\n", server.Version.Full, len(entries))
	}
	return os.WriteFile(output, []byte(render(majors, versions, merge(majors, found))), 0o644)
}
