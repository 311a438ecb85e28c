package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/acme/pg-operator/test/chaos/history"
)

func TestOutcome(t *testing.T) {
	for name, test := range map[string]struct {
		err        error
		committing bool
		want       history.Outcome
	}{
		"a refusal":                           {&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "25006"}, true, history.Failed},
		"a refusal, wrapped":                  {fmt.Errorf("x: %w", &pgconn.PgError{SeverityUnlocalized: "ERROR"}), true, history.Failed},
		"ended while the commit may wait":     {&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}, true, history.Unknown},
		"no answer to the commit":             {errors.New("unexpected EOF"), true, history.Unknown},
		"no answer before the commit was due": {errors.New("unexpected EOF"), false, history.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcome(test.err, test.committing); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestTimeline(t *testing.T) {
	for file, want := range map[string]uint32{"0000000A0000000000000003": 10, "": 0, "not a file of the log": 0} {
		if got := Timeline(file); got != want {
			t.Errorf("%q: %d, want %d", file, got, want)
		}
	}
}

// TestCarefulDialsOnce: the request to cancel would be a second connection.
func TestCarefulDialsOnce(t *testing.T) {
	config, err := pgx.ParseConfig("host=127.0.0.1 port=1 sslmode=disable user=app")
	if err != nil {
		t.Fatal(err)
	}
	doubts := 0
	careful := Careful(config, func() { doubts++ })
	for attempt, wantDialled := range []bool{true, false} {
		_, err = careful.DialFunc(t.Context(), "tcp", "127.0.0.1:1")
		var refused interface{ Timeout() bool } // a network's error
		if dialled := errors.As(err, &refused); dialled != wantDialled {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
	careful.OnNotice(nil, &pgconn.Notice{Message: "canceling wait for synchronous replication due to user request"})
	careful.OnNotice(nil, &pgconn.Notice{Message: `table "chaos_lists" does not exist, skipping`})
	if doubts != 1 {
		t.Errorf("%d doubts, want one", doubts)
	}
}

// TestChoose: values are never used twice, the locks of a transaction have an order, and lists stay short.
func TestChoose(t *testing.T) {
	l := &Load{}
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // It need not be secret.
	values, appends, kinds := map[int64]bool{}, map[int]int{}, map[history.Kind]int{}
	for range 10000 {
		o := l.choose(random)
		kinds[o.Kind]++
		if !o.Writes() {
			continue
		}
		if o.Value == 0 || values[o.Value] {
			t.Fatalf("value %d is used twice", o.Value)
		}
		values[o.Value] = true
		if o.Kind == history.Append {
			for i, key := range o.Keys {
				if appends[key]++; i > 0 && key <= o.Keys[i-1] {
					t.Fatalf("keys %v", o.Keys)
				}
			}
		}
	}
	if len(kinds) != 4 {
		t.Errorf("kinds %v, want all four", kinds)
	}
	for key, n := range appends {
		if n > perSlot+1 {
			t.Errorf("%d appends to list %d, want about %d at most", n, key, perSlot)
		}
	}
}
