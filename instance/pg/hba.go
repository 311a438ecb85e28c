package pg

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/postgres"
)

// HBAFile is the name of the file of client authentication, which PostgreSQL's complaints about it have.
const HBAFile = "pg_hba.conf"

func (s Server) writeHBA(lines []string) error {
	return WriteFile(filepath.Join(s.Volume.PGData(), HBAFile), []byte(postgres.RenderHBA(lines)))
}

// TryHBA writes lines of pg_hba.conf, and the fallback instead if the running server refuses any of them; refused says
// which and why. A server that reloads goes on with what it has when one is wrong, but does not start any more. What
// it uses does not change here.
func (s Server) TryHBA(ctx context.Context, lines, fallback []string) (refused []string, err error) {
	if err = s.writeHBA(lines); err != nil {
		return nil, err
	}
	refused, err = s.judgeHBA(ctx, lines)
	if err != nil || len(refused) > 0 {
		err = errors.Join(err, s.writeHBA(fallback))
	}
	return refused, err
}

// hbaQuery reads the file as it is now. Where a line's option has a wrong value, PostgreSQL forgets to say so, but such
// a line has no type.
const hbaQuery = "SELECT line_number, coalesce(error, '') FROM pg_hba_file_rules() WHERE error IS NOT NULL OR type IS NULL"

func (s Server) judgeHBA(ctx context.Context, lines []string) (refused []string, err error) {
	conn, err := s.Connect(ctx, postgres.RoleSuperuser)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, hbaQuery)
	if err != nil {
		return nil, err
	}
	var number int
	var verdict string
	_, err = pgx.ForEachRow(rows, []any{&number, &verdict}, func() error {
		line := ""
		if number >= 1 && number <= len(lines) {
			line = lines[number-1]
		}
		refused = append(refused, hbaVerdict(line, verdict))
		return nil
	})
	return refused, err
}

// optionsBegin is before which word options cannot be: type, database, user, address, method.
const optionsBegin = 5

// hbaVerdict says which line PostgreSQL refuses and why, without the options and whatever else PostgreSQL repeats of the
// line: an option may be a password.
func hbaVerdict(line, verdict string) string {
	if cut := strings.IndexAny(verdict, `":`); cut >= 0 {
		verdict = strings.TrimSpace(verdict[:cut])
	}
	if verdict == "" {
		verdict = "an option has a wrong value"
	}
	var words []string
	for i, word := range strings.Fields(line) {
		if i == optionsBegin || strings.Contains(word, "=") {
			words = append(words, "…")
			break
		}
		words = append(words, word)
	}
	return fmt.Sprintf("%s: PostgreSQL refuses the line %q (%s), and goes on with the lines from before",
		HBAFile, strings.Join(words, " "), verdict)
}
