package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// table is a database in memory with faults.
type table struct {
	mu     sync.Mutex
	ids    []int64
	insert func(t *table, id int64) error
}

func (t *table) Prepare(context.Context) error { return nil }
func (t *table) Close()                        {}

func (t *table) Insert(_ context.Context, id int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.insert(t, id)
}

func (t *table) IDs(context.Context) ([]int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ids), nil
}

func TestVerify(t *testing.T) {
	store := func(t *table, id int64) error { t.ids = append(t.ids, id); return nil }
	broken := errors.New("connection reset")
	for name, test := range map[string]struct {
		insert func(t *table, id int64) error
		want   string
	}{
		"every write is kept": {insert: store},
		"an acknowledged write is lost": {
			insert: func(t *table, id int64) error {
				if id == 3 {
					return nil
				}
				return store(t, id)
			},
			want: "acknowledged writes are lost, the first is row 3",
		},
		"an unanswered write is kept": {
			insert: func(t *table, id int64) error {
				_ = store(t, id)
				if id == 2 {
					return broken
				}
				return nil
			},
		},
		"an unanswered write is lost": {
			insert: func(t *table, id int64) error {
				if id == 2 {
					return broken
				}
				return store(t, id)
			},
		},
		"a row is there twice": {
			insert: func(t *table, id int64) error { _ = store(t, id); return store(t, id) },
			want:   "is there twice",
		},
		"a row nobody wrote": {
			insert: func(t *table, id int64) error { return store(t, id+1000) },
			want:   "was never written",
		},
		"nothing was acknowledged": {
			insert: func(*table, int64) error { return broken },
			want:   "nothing was checked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := make(chan struct{}, 1000)
			database := &table{}
			database.insert = func(t *table, id int64) error {
				attempts <- struct{}{}
				return test.insert(t, id)
			}
			ledger, err := Start(t.Context(), func(context.Context) (Session, error) { return database, nil })
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				select {
				case <-attempts:
				case <-time.After(10 * time.Second):
					t.Fatal("the writer made fewer than 5 attempts")
				}
			}
			ledger.Stop()
			err = ledger.Verify(t.Context())
			switch {
			case test.want == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
