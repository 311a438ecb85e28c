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
	dropped := &pgconn.PgError{Code: "3D000"}
	gone, missing := &pgconn.PgError{Code: "58P01"}, &pgconn.PgError{Code: "3D000", Detail: "The subdirectory is missing."}
	for name, tc := range map[string]struct {
		answers []error
		closed  bool
		changes int
	}{
		"open":                    {answers: []error{nil, nil, nil, nil}},
		"closed":                  {answers: []error{miss, miss, miss}, closed: true, changes: 1},
		"not closed so soon":      {answers: []error{miss, miss}},
		"misses not in a row":     {answers: []error{miss, miss, nil, miss, miss}},
		"too many sessions":       {answers: []error{miss, miss, full, full, full}},
		"database dropped":        {answers: []error{dropped, dropped, dropped}},
		"data directory gone":     {answers: []error{gone, missing, gone}, closed: true, changes: 1},
		"opened again":            {answers: []error{miss, miss, miss, miss, nil}, changes: 2},
		"closed for a long while": {answers: []error{nil, miss, miss, miss, miss, miss}, closed: true, changes: 1},
		"hopeless":                {answers: []error{miss, miss, miss, miss, miss, miss}, closed: true, changes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d door
				ctx, cancel := context.WithCancel(t.Context())
				asked, changes := 0, 0
				d.watch(ctx, func() time.Duration { return knockInterval }, func(context.Context) error {
					if asked++; asked > len(tc.answers) {
						cancel()
						return nil
					}
					return tc.answers[asked-1]
				}, func() { changes++ })
				err := d.closed()
				if (err != nil) != tc.closed || tc.closed && !errors.Is(err, tc.answers[len(tc.answers)-1]) {
					t.Errorf("got %v", err)
				}
				if hopeless := d.hopeless() != nil; hopeless != (name == "hopeless") {
					t.Errorf("hopeless: %v", hopeless)
				}
				if changes != tc.changes {
					t.Errorf("told of %d changes, want %d", changes, tc.changes)
				}
			})
		})
	}
}

// TestDoorHangs measures in fake time how long it takes to believe that nobody answers.
func TestDoorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		d.watch(ctx, func() time.Duration { return knockInterval }, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, cancel)
		if took := time.Since(begun); took != knockInterval+closedAfter*knockTimeout || d.closed() == nil {
			t.Errorf("after %v: %v", took, d.closed())
		}
	})
}
