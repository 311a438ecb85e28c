package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestDoor(t *testing.T) {
	miss, full := errors.New("timeout"), &pgconn.PgError{Code: "53300"}
	for name, tc := range map[string]struct {
		answers []error
		closed  bool
	}{
		"open":                    {answers: []error{nil, nil, nil, nil}},
		"closed":                  {answers: []error{miss, miss, miss}, closed: true},
		"not closed so soon":      {answers: []error{miss, miss}},
		"misses not in a row":     {answers: []error{miss, miss, nil, miss, miss}},
		"too many sessions":       {answers: []error{miss, miss, full, full, full}},
		"opened again":            {answers: []error{miss, miss, miss, miss, nil}},
		"closed for a long while": {answers: []error{nil, miss, miss, miss, miss, miss}, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d door
				var err error
				asked := 0
				for range 3 * len(tc.answers) {
					err = d.check(t.Context(), func(context.Context) error {
						asked++
						return tc.answers[asked-1]
					})
					time.Sleep(knockInterval / 3)
				}
				if (err != nil) != tc.closed || tc.closed && !errors.Is(err, miss) {
					t.Errorf("got %v", err)
				}
				if asked != len(tc.answers) {
					t.Errorf("asked %d times in %d intervals", asked, len(tc.answers))
				}
			})
		})
	}
}
