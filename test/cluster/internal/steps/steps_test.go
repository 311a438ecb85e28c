package steps

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

func TestStepsRunAfterWhatTheyNeed(t *testing.T) {
	var mu sync.Mutex
	var order []string
	step := func(name string, after ...string) Step {
		return Step{Name: name, After: after, Run: func(context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return "ok", nil
		}}
	}
	var out strings.Builder
	err := Run(t.Context(), &out, []Step{step("a"), step("b"), step("c", "a", "b"), step("d", "c")})
	if err != nil {
		t.Fatal(err)
	}
	if len(order) != 4 || order[2] != "c" || order[3] != "d" {
		t.Errorf("order %v", order)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[3], "[ 4/4]") || !strings.HasSuffix(lines[3], "d: ok") {
		t.Errorf("progress %q", out.String())
	}
}

func TestTheFirstErrorEndsTheRun(t *testing.T) {
	failure := errors.New("broken")
	ran := false
	err := Run(t.Context(), &strings.Builder{}, []Step{
		{Name: "fails", Run: func(context.Context) (string, error) { return "", failure }},
		{Name: "waits", Run: func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }},
		{Name: "never", After: []string{"fails"}, Run: func(context.Context) (string, error) { ran = true; return "", nil }},
	})
	if !errors.Is(err, failure) || !strings.HasPrefix(err.Error(), "fails: ") {
		t.Errorf("error %v", err)
	}
	if ran {
		t.Error("a step ran though what it needs had failed")
	}
}

func TestWrongOrderIsRefused(t *testing.T) {
	nothing := func(context.Context) (string, error) { return "", nil }
	for name, all := range map[string][]Step{
		"later":   {{Name: "a", After: []string{"b"}, Run: nothing}, {Name: "b", Run: nothing}},
		"unknown": {{Name: "a", After: []string{"x"}, Run: nothing}},
		"twice":   {{Name: "a", Run: nothing}, {Name: "a", Run: nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			if Run(t.Context(), &strings.Builder{}, all) == nil {
				t.Error("want an error")
			}
		})
	}
}
