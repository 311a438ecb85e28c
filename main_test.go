package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestRole(t *testing.T) {
	tests := map[string]struct{ args, want []string }{
		"nothing":       {nil, []string{"manager"}},
		"flags first":   {[]string{"--leader-elect=false"}, []string{"manager", "--leader-elect=false"}},
		"manager":       {[]string{"manager", "--webhooks=false"}, []string{"manager", "--webhooks=false"}},
		"another role":  {[]string{"instance", "run"}, []string{"instance", "run"}},
		"help of roles": {[]string{"--help"}, []string{"--help"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := withRole(tc.args); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestEveryRoleIsKnown(t *testing.T) {
	for _, args := range [][]string{{"manager", "--help"}, {"instance", "run", "--help"}, {"instance", "install", "--help"}, {"version"}} {
		root := newRoot()
		root.SetArgs(args)
		var out bytes.Buffer
		root.SetOut(&out)
		if err := root.Execute(); err != nil || out.Len() == 0 {
			t.Errorf("%s: %v, %d bytes of output", strings.Join(args, " "), err, out.Len())
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"manger":                       `unknown command "manger"`,
		"manager --no-such-flag":       "unknown flag: --no-such-flag",
		"manager extra":                `unknown command "extra"`,
		"manager --default-version=14": `--default-version="14"`,
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
