package contract

import (
	"encoding/json"
	"strings"
	"testing"
)

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
		"no identifier": {text: `{"systemID":"x"}`},
		"no version":    {text: `{"dataVersion":"` + strings.Repeat("9", 17) + `"}`},
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
