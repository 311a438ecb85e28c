package election

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/acme/pg-operator/instance/lease"
)

func quorums(text string) []lease.Quorum {
	s, err := lease.ParseSync(text)
	if err != nil {
		panic(err)
	}
	return s.InForce
}

func quorum(text string) lease.Quorum {
	if text == "" {
		return lease.Quorum{}
	}
	return quorums("required " + text)[0]
}

func TestNextSync(t *testing.T) {
	required, preferred := Durability{Number: 1, Required: true}, Durability{Number: 1}
	for name, tc := range map[string]struct {
		wanted            Durability
		others, streaming string
		record, applied   string
		settled           bool
		// want is "apply ..." or "record ..."; empty to wait.
		want string
	}{
		"asynchronous":                 {others: "b c", streaming: "b c"},
		"begins in PostgreSQL":         {wanted: preferred, others: "b c", streaming: "b c", want: "apply ANY 1 (b,c)"},
		"waits until it settled":       {wanted: preferred, others: "b c", streaming: "b c", applied: "ANY 1 (b,c)"},
		"then in the Lease":            {wanted: preferred, others: "b c", streaming: "b c", applied: "ANY 1 (b,c)", settled: true, want: "record preferred ANY 1 (b,c)"},
		"a standby goes, Lease first":  {wanted: required, others: "b c", streaming: "b", record: "required ANY 1 (b,c)", applied: "ANY 1 (b,c)", settled: true, want: "record required ANY 1 (b,c); ANY 1 (b)"},
		"then PostgreSQL":              {wanted: required, others: "b c", streaming: "b", record: "required ANY 1 (b,c); ANY 1 (b)", applied: "ANY 1 (b,c)", settled: true, want: "apply ANY 1 (b)"},
		"then the Lease waits":         {wanted: required, others: "b c", streaming: "b", record: "required ANY 1 (b,c); ANY 1 (b)", applied: "ANY 1 (b)"},
		"and forgets":                  {wanted: required, others: "b c", streaming: "b", record: "required ANY 1 (b,c); ANY 1 (b)", applied: "ANY 1 (b)", settled: true, want: "record required ANY 1 (b)"},
		"comes back meanwhile":         {wanted: required, others: "b c", streaming: "b c", record: "required ANY 1 (b,c); ANY 1 (b)", applied: "ANY 1 (b)", want: "apply ANY 1 (b,c)"},
		"required and nobody streams":  {wanted: required, others: "b c", record: "required ANY 1 (b)", applied: "ANY 1 (b)", settled: true, want: "record required ANY 1 (b); ANY 1 (b,c)"},
		"preferred and nobody streams": {wanted: preferred, others: "b c", record: "preferred ANY 1 (b)", applied: "ANY 1 (b)", settled: true, want: "record "},
		"then it is off":               {wanted: preferred, others: "b c", applied: "ANY 1 (b)", want: "apply "},
		"preferred with fewer":         {wanted: Durability{Number: 2}, others: "b c", streaming: "b", want: "apply ANY 1 (b)"},
		"switched off":                 {others: "b c", streaming: "b c", record: "required ANY 1 (b,c)", applied: "ANY 1 (b,c)", settled: true, want: "record "},
		"preferred becomes required":   {wanted: required, others: "b c", streaming: "b c", record: "preferred ANY 1 (b,c)", applied: "ANY 1 (b,c)", settled: true, want: "record required ANY 1 (b,c)"},
		"nobody else":                  {wanted: required},
	} {
		t.Run(name, func(t *testing.T) {
			record, err := lease.ParseSync(tc.record)
			if err != nil {
				t.Fatal(err)
			}
			step := NextSync(SyncFacts{
				Wanted: tc.wanted, Others: strings.Fields(tc.others), Streaming: strings.Fields(tc.streaming),
				Record: record, Applied: quorum(tc.applied), Settled: tc.settled,
			})
			if got := stepText(step); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func stepText(s SyncStep) string {
	switch {
	case s.Record != nil:
		return "record " + s.Record.String()
	case s.Apply != nil && len(s.Apply.Standbys) == 0:
		return "apply "
	case s.Apply != nil:
		return "apply " + s.Apply.String()
	}
	return ""
}

// primaryModel is a primary whose commits are acknowledged, and standbys that have them or not.
type primaryModel struct {
	SyncFacts
	// commits so far, and how many of them were acknowledged.
	written, acknowledged int
	// has is how far each standby has them.
	has map[string]int
	// settledAt is how far was written when what is applied was confirmed; confirmed tells that it was.
	settledAt int
	confirmed bool
	// loose are the quorums that some process of PostgreSQL may still go by.
	loose []lease.Quorum
}

// safe fails if somebody could win an election by the Lease's record and lack an acknowledged commit: for each set of
// voters that is enough for every quorum, the best of them must have all.
func (m *primaryModel) safe() error {
	if !m.Record.Synchronous() {
		return nil
	}
	for set := range 1 << len(m.Others) {
		best, enough := 0, true
		for _, q := range m.Record.InForce {
			voters := 0
			for i, other := range m.Others {
				if set&(1<<i) != 0 && slices.Contains(q.Standbys, other) {
					voters++
				}
			}
			enough = enough && voters > len(q.Standbys)-q.Number
		}
		for i, other := range m.Others {
			if set&(1<<i) != 0 {
				best = max(best, m.has[other])
			}
		}
		if enough && best < m.acknowledged {
			return fmt.Errorf("voters %b of %v win by %s with %d of %d acknowledged commits", set, m.Others, m.Record, best, m.acknowledged)
		}
	}
	return nil
}

// acknowledge counts the commits that reached a quorum that some process goes by.
func (m *primaryModel) acknowledge() {
	for _, q := range append(m.loose, m.Applied) {
		m.acknowledgeBy(q)
	}
}

func (m *primaryModel) acknowledgeBy(q lease.Quorum) {
	if len(q.Standbys) == 0 {
		m.acknowledged = m.written
		return
	}
	var have []int
	for _, standby := range q.Standbys {
		have = append(have, m.has[standby])
	}
	slices.Sort(have)
	m.acknowledged = max(m.acknowledged, have[len(have)-q.Number])
}

// TestSyncSafe changes what is wanted and who streams at random, and looks after each step at what an election could do.
func TestSyncSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &primaryModel{has: map[string]int{}}
		m.Others = []string{"b", "c", "d", "e"}[:rapid.IntRange(1, 4).Draw(t, "others")]
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				m.Wanted = Durability{Number: rapid.IntRange(0, len(m.Others)).Draw(t, "number"), Required: rapid.Bool().Draw(t, "required")}
			case 1:
				m.Damped = slices.DeleteFunc(slices.Clone(m.Others), func(string) bool { return rapid.Bool().Draw(t, "steady") })
				m.Streaming = slices.DeleteFunc(slices.Clone(m.Others), func(string) bool { return rapid.Bool().Draw(t, "gone") })
			case 2:
				m.written++
			case 3:
				for _, standby := range m.Streaming {
					m.has[standby] = rapid.IntRange(m.has[standby], m.written).Draw(t, "has")
				}
			case 4:
				// All of PostgreSQL works with what was applied.
				m.confirm()
			case 5:
				m.step()
			}
			m.acknowledge()
			if err := m.safe(); err != nil {
				t.Fatal(err)
			}
		}
		// Once nothing changes any more, it comes to its end.
		for range 20 {
			m.confirm()
			for _, standby := range m.Streaming {
				m.has[standby] = m.written
			}
			m.step()
			m.acknowledge()
			if err := m.safe(); err != nil {
				t.Fatal(err)
			}
		}
		target := wantedQuorum(m.Wanted, m.Others, m.counted())
		if met := (SyncFacts{Streaming: m.Streaming}).met(target); met && len(target.Standbys) > 0 &&
			!m.Record.Equal(lease.Sync{Required: m.Wanted.Required, InForce: []lease.Quorum{target}}) {
			t.Fatalf("ends with %q, want %s", m.Record, target)
		}
	})
}

// met tells whether commits that wait for a quorum come to an end.
func (f SyncFacts) met(q lease.Quorum) bool {
	streaming := 0
	for _, standby := range q.Standbys {
		if slices.Contains(f.Streaming, standby) {
			streaming++
		}
	}
	return streaming >= q.Number
}

// step does the next thing. An old quorum may still acknowledge until the new one is confirmed.
func (m *primaryModel) step() {
	flushed := 0
	for _, standby := range m.Applied.Standbys {
		if m.has[standby] >= m.settledAt {
			flushed++
		}
	}
	m.Settled = m.confirmed && len(m.Applied.Standbys) > 0 && flushed >= m.Applied.Number
	step := NextSync(m.SyncFacts)
	switch {
	case step.Record != nil:
		m.Record = *step.Record
	case step.Apply != nil:
		m.loose = append(m.loose, m.Applied)
		m.Applied, m.confirmed = *step.Apply, false
	}
}

// confirm has all of PostgreSQL work with what was applied.
func (m *primaryModel) confirm() {
	if !m.confirmed {
		m.confirmed, m.settledAt, m.loose = true, m.written, nil
	}
}

func TestSyncAtStart(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted Durability
		record string
		start  string
	}{
		"asynchronous": {},
		"required":     {wanted: Durability{Number: 1, Required: true}, start: "ANY 1 (b,c)"},
		"preferred":    {wanted: Durability{Number: 1}},
		"recorded":     {wanted: Durability{Number: 1, Required: true}, record: "required ANY 1 (b,c); ANY 1 (b)", start: "ANY 1 (b)"},
		"too many":     {wanted: Durability{Number: 3, Required: true}, start: "ANY 2 (b,c)"},
	} {
		record, err := lease.ParseSync(tc.record)
		if err != nil {
			t.Fatal(err)
		}
		got := SyncAtStart(record, tc.wanted, []string{"b", "c"})
		if text := got.String(); tc.start == "" && len(got.Standbys) > 0 || tc.start != "" && text != tc.start {
			t.Errorf("%s: starts with %q, want %q", name, text, tc.start)
		}
	}
}
