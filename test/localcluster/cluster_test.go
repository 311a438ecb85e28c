package localcluster

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestParseEnv(t *testing.T) {
	got := parseEnv("export KUBECONFIG=\"/state/admin.kubeconfig\"\nPGO_CLUSTER_SOCKS=127.0.0.1:1080\n# a comment\n")
	want := map[string]string{"KUBECONFIG": "/state/admin.kubeconfig", "PGO_CLUSTER_SOCKS": "127.0.0.1:1080"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWaitExplainsWhatItLastSaw(t *testing.T) {
	looks := 0
	_, err := Wait(t.Context(), 3*pollInterval, "3 of 3 ready", func(ctx context.Context) (bool, string) {
		looks++
		return false, "1 of 3 ready"
	})
	if err == nil || !strings.Contains(err.Error(), "3 of 3 ready") || !strings.Contains(err.Error(), "1 of 3 ready") {
		t.Errorf("the error says neither what was wanted nor what was seen: %v", err)
	}
	if looks < 2 {
		t.Errorf("looked %d times, want several", looks)
	}
}

func TestWaitEndsWithTheProbe(t *testing.T) {
	looks := 0
	elapsed, err := Wait(t.Context(), time.Minute, "second look", func(context.Context) (bool, string) {
		looks++
		return looks == 2, ""
	})
	if err != nil || elapsed >= time.Minute {
		t.Errorf("ended after %s with %v", elapsed, err)
	}
}

func TestWithoutKindsKeepsAllButDefinitions(t *testing.T) {
	got, err := withoutKinds("kind: Namespace\n---\nkind: CustomResourceDefinition\n---\n---\nkind: Deployment\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "---\nkind: Namespace\n---\nkind: Deployment\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
