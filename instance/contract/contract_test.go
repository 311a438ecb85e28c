package contract

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestParseFailover: a failover fits into a status, or the report is none.
func TestParseFailover(t *testing.T) {
	whole := `"from":"db-0","to":"db-1","cause":"the agent of db-0 ended","term":3,` +
		`"detected":"2026-01-02T03:04:05.6Z","promoted":"2026-01-02T03:04:06Z"`
	tests := map[string]struct {
		fields string
		read   bool
	}{
		"whole":               {fields: whole + `,"lostBytes":0`, read: true},
		"of unknown loss":     {fields: whole + `,"lostUnknown":"db-0 was not seen since"`, read: true},
		"of a first primary":  {fields: `"to":"db-1","cause":"clean","term":1`, read: true},
		"to nobody":           {fields: `"from":"db-0","cause":"x","term":3`},
		"to a sentence":       {fields: `"to":"db 1","term":3`},
		"from a long name":    {fields: `"from":"` + strings.Repeat("x", 64) + `","to":"db-1","term":3`},
		"of no term":          {fields: `"to":"db-1","term":0`},
		"of a term below":     {fields: `"to":"db-1","term":-1`},
		"of a long story":     {fields: whole + `,"lostUnknown":"` + strings.Repeat("x", MaxFailoverText+1) + `"`},
		"of a coloured story": {fields: `"to":"db-1","term":3,"cause":"\u001b[31mred"`},
		"of a turned story":   {fields: `"to":"db-1","term":3,"cause":"a\u202eb"`},
		"in other letters":    {fields: `"to":"db-1","term":3,"cause":"Größe 5 µs"`, read: true},
		"of less than none":   {fields: whole + `,"lostBytes":-1`},
		"of too much":         {fields: whole + `,"lostBytes":9223372036854775808`},
		"before computers":    {fields: `"to":"db-1","term":3,"detected":"0004-01-02T03:04:05Z"`},
		"after the end":       {fields: `"to":"db-1","term":3,"promoted":"9999-12-31T23:59:59-23:00"`},
		"at no time":          {fields: `"to":"db-1","term":3,"promoted":"soon"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if read := ParseReport(`{"state":"Running","lastFailover":{`+test.fields+`}}`) != nil; read != test.read {
				t.Errorf("read: %v, want %v", read, test.read)
			}
		})
	}
}

// TestParseReport: what agents write is read, and nothing that would not fit into a status.
func TestParseReport(t *testing.T) {
	tests := map[string]struct {
		text string
		read bool
	}{
		"nothing":               {},
		"not JSON":              {text: "{"},
		"of a starting agent":   {text: `{"state":"Waiting","message":"for the primary"}`, read: true},
		"of a primary":          {text: `{"role":"Primary","state":"Running","systemID":"18446744073709551615","dataVersion":"17"}`, read: true},
		"of a newer agent":      {text: `{"role":"Replica","state":"Rewinding","dataVersion":"19","more":[1]}`, read: true},
		"another role":          {text: `{"role":"King","state":"Running"}`},
		"no state, but a story": {text: `{"state":"` + strings.Repeat("x", 65) + `"}`},
		"an identifier of more digits than 64 bits have": {text: `{"systemID":"` + strings.Repeat("7", 21) + `"}`},
		"no identifier":        {text: `{"systemID":"x"}`},
		"no version":           {text: `{"dataVersion":"` + strings.Repeat("9", 17) + `"}`},
		"of a wait":            {text: `{"state":"Waiting","waiting":"WaitingForQuorum"}`, read: true},
		"of a quorum":          {text: `{"synchronous":{"number":1,"standbys":["db-1","db-2"]}}`, read: true},
		"of an empty quorum":   {text: `{"synchronous":{"number":0,"standbys":["db-1"]}}`},
		"of too few":           {text: `{"synchronous":{"number":2,"standbys":["db-1"]}}`},
		"of strange standbys":  {text: `{"synchronous":{"number":1,"standbys":["*"]}}`},
		"of too many":          {text: `{"synchronous":{"number":1,"standbys":[` + strings.Repeat(`"a",`, 16) + `"b"]}}`},
		"waiting for ages":     {text: `{"waiting":"WaitingForLease","waitingSince":"0004-01-02T03:04:05Z"}`},
		"waiting for a minute": {text: `{"waiting":"WaitingForLease","waitingSince":"2026-01-02T03:04:05Z"}`, read: true},
		"a long reason":        {text: `{"waiting":"` + strings.Repeat("x", 65) + `"}`},
		"of an order":          {text: `{"state":"Running","orderProblem":"db-2 lacks 5 GB of the log"}`, read: true},
		"a coloured order":     {text: `{"state":"Running","orderProblem":"\u001b[31mred"}`},
		"a reason in words":    {text: `{"waiting":"for db-2"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if read := ParseReport(test.text) != nil; read != test.read {
				t.Errorf("read: %v, want %v", read, test.read)
			}
		})
	}
	for _, state := range []State{
		StateWaiting, StateBootstrapping, StateCloning, StateStarting, StateRunning, StateNotStreaming, StateStopping, StateFailed,
	} {
		for _, role := range []Role{"", RolePrimary, RoleReplica} {
			text, err := json.Marshal(Report{Role: role, State: state, SystemID: "7300000000000000001", DataVersion: "17"})
			if err != nil {
				t.Fatal(err)
			}
			if ParseReport(string(text)) == nil {
				t.Errorf("%s is not read", text)
			}
		}
	}
}

func TestCauseWord(t *testing.T) {
	tests := map[string]struct {
		cause, word string
		planned     bool
	}{
		"alone":         {cause: CauseLeaseExpired, word: "LeaseExpired"},
		"with details":  {cause: CausePostgresFailed + ": the postmaster of db-0 ended", word: "PostgresFailed"},
		"planned":       {cause: CauseHandedOver + ": asked by switchover", word: "HandedOver", planned: true},
		"a sentence":    {cause: "The agent ended", word: "Other"},
		"nothing":       {word: "Other"},
		"a small word":  {cause: "silence: x", word: "Other"},
		"a long word":   {cause: "A" + strings.Repeat("a", 60), word: "Other"},
		"in two pieces": {cause: "Handed Over", word: "Other"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := Failover{Cause: test.cause}
			if f.CauseWord() != test.word || f.Planned() != test.planned {
				t.Errorf("word %s, planned %v", f.CauseWord(), f.Planned())
			}
		})
	}
}
