package history

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// at makes an operation of client c between two milliseconds.
func at(c, begin, end int, o Operation) Operation {
	o.Client, o.Begin, o.End = c, time.Duration(begin)*time.Millisecond, time.Duration(end)*time.Millisecond
	if o.Timeline == 0 {
		o.Timeline = 1
	}
	return o
}

func appended(value int64, list ...int64) Operation {
	return Operation{Kind: Append, Keys: []int{1}, Value: value, Outcome: Acknowledged, Lists: map[int][]int64{1: list}}
}

func read(list ...int64) Operation {
	return Operation{Kind: ReadList, Keys: []int{1}, Outcome: Acknowledged, Lists: map[int][]int64{1: list}}
}

func unanswered(value int64) Operation {
	return Operation{Kind: Append, Keys: []int{1}, Value: value, Error: "no answer"}
}

func swapped(value, before int64) Operation {
	return Operation{Kind: Swap, Keys: []int{1}, Value: value, Register: before, Outcome: Acknowledged}
}

func seen(value int64) Operation {
	return Operation{Kind: ReadRegister, Keys: []int{1}, Register: value, Outcome: Acknowledged}
}

func on(timeline uint32, o Operation) Operation {
	o.Timeline = timeline
	return o
}

// complaints names what a verdict holds.
func complaints(v Verdict) []string {
	var kinds []string
	for kind, n := range map[string]int{
		"lost": len(v.Lost), "vanished": len(v.Vanished), "wrong": len(v.Wrong), "back": len(v.Back), "stale": len(v.Stale),
		"two writers": int(v.TwoWriters),
	} {
		if n > 0 {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

func TestCheck(t *testing.T) {
	failed := appended(2)
	failed.Outcome, failed.Lists = Failed, nil
	both := appended(1, 1)
	both.Keys = []int{1, 2}
	for name, test := range map[string]struct {
		operations []Operation
		list       []int64
		register   int64
		want       []string
	}{
		"all is there": {
			operations: []Operation{at(1, 0, 10, appended(1, 1)), at(2, 5, 20, appended(2, 1, 2)), at(1, 30, 40, read(1, 2))},
			list:       []int64{1, 2},
		},
		"an acknowledged append is lost": {
			operations: []Operation{at(1, 0, 10, appended(1, 1)), at(1, 20, 30, appended(2, 1, 2))},
			list:       []int64{1}, want: []string{"lost"},
		},
		"an unanswered append may be there": {
			operations: []Operation{at(1, 0, 10, unanswered(1))}, list: []int64{1},
		},
		"an unanswered append may be lost": {
			operations: []Operation{at(1, 0, 10, unanswered(1))},
		},
		"an unanswered append that saw itself may be lost": {
			operations: []Operation{at(1, 0, 10, Operation{Kind: Append, Keys: []int{1}, Value: 1, Lists: map[int][]int64{1: {1}}})},
		},
		"what somebody read is lost": {
			operations: []Operation{at(1, 0, 10, unanswered(1)), at(2, 20, 30, read(1))}, want: []string{"vanished"},
		},
		"a failed append is there": {
			operations: []Operation{at(1, 0, 10, failed)}, list: []int64{2}, want: []string{"wrong"},
		},
		"a value nobody wrote": {
			list: []int64{7}, want: []string{"wrong"},
		},
		"a value twice": {
			operations: []Operation{at(1, 0, 10, appended(1, 1))}, list: []int64{1, 1}, want: []string{"wrong"},
		},
		"half a transaction": {
			operations: []Operation{at(1, 0, 10, both)}, list: []int64{1}, want: []string{"wrong"},
		},
		"an update swallowed another": {
			operations: []Operation{at(1, 0, 10, appended(1, 1)), at(2, 0, 10, appended(2, 1, 2)), at(1, 20, 30, appended(3, 1, 3))},
			list:       []int64{1, 3}, want: []string{"lost"},
		},
		"an update in the middle is lost": {
			operations: []Operation{at(1, 0, 10, unanswered(2)), at(2, 20, 30, appended(3, 2, 3))},
			list:       []int64{3}, want: []string{"vanished", "wrong"},
		},
		"a client's read goes back": {
			operations: []Operation{at(1, 0, 10, appended(1, 1)), at(1, 20, 30, read())}, list: []int64{1}, want: []string{"back"},
		},
		"a read is stale": {
			operations: []Operation{at(1, 0, 10, appended(1, 1)), at(2, 20, 30, read())}, list: []int64{1}, want: []string{"stale"},
		},
		"a read beside a write": {
			operations: []Operation{at(1, 0, 10, appended(1, 1)), at(2, 5, 30, read())}, list: []int64{1},
		},
		"an append does not see itself": {
			operations: []Operation{at(1, 0, 10, appended(1))}, list: []int64{1}, want: []string{"wrong"},
		},
		"swaps in a row": {
			operations: []Operation{at(1, 0, 10, swapped(1, 0)), at(2, 5, 20, swapped(2, 1)), at(1, 30, 40, seen(2))}, register: 2,
		},
		"two swaps of one value": {
			operations: []Operation{at(1, 0, 10, swapped(1, 0)), at(2, 5, 20, swapped(2, 0))}, register: 2, want: []string{"wrong"},
		},
		"a swap is lost": {
			operations: []Operation{at(1, 0, 10, swapped(1, 0))}, want: []string{"wrong"},
		},
		"an unanswered swap happens late": {
			operations: []Operation{
				at(1, 0, 10, Operation{Kind: Swap, Keys: []int{1}, Value: 1}), at(2, 20, 30, swapped(2, 0)), at(2, 40, 50, seen(1)),
			},
			register: 1,
		},
		"a register's read is stale, on one timeline": {
			operations: []Operation{at(1, 0, 10, swapped(1, 0)), at(2, 20, 30, seen(0))}, register: 1, want: []string{"wrong"},
		},
		"a register's read is stale, of an earlier timeline": {
			operations: []Operation{at(1, 0, 10, on(2, swapped(1, 0))), at(2, 20, 30, on(1, seen(0)))}, register: 1,
		},
		"two writers": {
			operations: []Operation{
				at(1, 0, 10, swapped(1, 0)), at(1, 10, 20, on(2, swapped(2, 1))), at(2, 25, 35, swapped(3, 2)), at(2, 40, 50, on(2, swapped(4, 3))),
			},
			register: 4, want: []string{"two writers"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := Check(test.operations, Final{Lists: map[int][]int64{1: test.list}, Registers: map[int]int64{1: test.register}})
			if got := complaints(v); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q: %+v", got, test.want, v)
			}
		})
	}
}

func TestStaleFor(t *testing.T) {
	v := Check([]Operation{at(1, 0, 10, appended(1, 1)), at(1, 12, 30, appended(2, 1, 2)), at(2, 110, 120, read())},
		Final{Lists: map[int][]int64{1: {1, 2}}})
	if v.StaleFor != 100*time.Millisecond {
		t.Errorf("stale for %s, want 100ms: since the first value that was missed", v.StaleFor)
	}
}

func TestTwoWriters(t *testing.T) {
	ms := time.Millisecond
	for name, test := range map[string]struct {
		acks []Ack
		want time.Duration
	}{
		"none":                             {},
		"one after the other":              {acks: []Ack{{"a", 1, 0, 10 * ms}, {"b", 2, 20 * ms, 30 * ms}}},
		"an answer that came late":         {acks: []Ack{{"a", 1, 0, 10 * ms}, {"a", 1, 15 * ms, 50 * ms}, {"b", 2, 20 * ms, 30 * ms}}},
		"asked after the other had begun":  {acks: []Ack{{"a", 1, 0, 10 * ms}, {"b", 2, 20 * ms, 30 * ms}, {"a", 1, 40 * ms, 50 * ms}}, want: 20 * ms},
		"the same instance, twice, is one": {acks: []Ack{{"a", 1, 0, 10 * ms}, {"a", 1, 20 * ms, 30 * ms}}},
		"there and back":                   {acks: []Ack{{"a", 1, 0, 10 * ms}, {"b", 2, 20 * ms, 30 * ms}, {"a", 3, 40 * ms, 50 * ms}}},
		"two promoted to one timeline": {
			acks: []Ack{{"a", 2, 0, 10 * ms}, {"b", 2, 20 * ms, 30 * ms}, {"a", 2, 40 * ms, 60 * ms}}, want: 30 * ms,
		},
		"one that begins late": {
			acks: []Ack{{"b", 2, 0, 10 * ms}, {"a", 1, 20 * ms, 30 * ms}, {"b", 2, 40 * ms, 50 * ms}}, want: 20 * ms,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TwoWriters(test.acks); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestOutage(t *testing.T) {
	var operations []Operation
	for _, end := range []int{10, 20, 120, 130, 400} {
		operations = append(operations, at(1, end-5, end, swapped(int64(end), 0)))
	}
	failed := at(1, 60, 70, swapped(70, 0))
	failed.Outcome = Failed
	operations = append(operations, failed)
	ms := time.Millisecond
	for name, test := range map[string]struct{ since, until, want, ended time.Duration }{
		"from the last before to the next": {50 * ms, 200 * ms, 100 * ms, 120 * ms},
		"before the fault does not count":  {125 * ms, 135 * ms, 10 * ms, 130 * ms},
		"no write any more":                {125 * ms, 330 * ms, 200 * ms, 330 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ended := Outage(operations, test.since, test.until); got != test.want || ended != test.ended {
				t.Errorf("got %s until %s, want %s until %s", got, ended, test.want, test.ended)
			}
		})
	}
}

func TestTerms(t *testing.T) {
	holders := []Holder{{"a", 1}, {"", 1}, {"a", 1}, {"b", 2}, {"", 2}}
	if got := Terms(holders); got != 2 {
		t.Errorf("%d terms in %v, want 2", got, holders)
	}
}

func TestTermErrors(t *testing.T) {
	for name, test := range map[string]struct {
		holders []Holder
		want    string
	}{
		"renewals":               {holders: []Holder{{"a", 1}, {"a", 1}}},
		"a takeover":             {holders: []Holder{{"a", 1}, {"b", 2}}},
		"a release and takeover": {holders: []Holder{{"a", 1}, {"", 1}, {"b", 2}}},
		"taken back":             {holders: []Holder{{"a", 1}, {"", 1}, {"a", 1}}},
		"two in a term":          {holders: []Holder{{"a", 1}, {"b", 1}}, want: "two holders"},
		"two, with a release":    {holders: []Holder{{"a", 1}, {"", 1}, {"b", 1}}, want: "two holders"},
		"a fall":                 {holders: []Holder{{"a", 2}, {"a", 1}}, want: "fell"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(TermErrors(test.holders), "; ")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
