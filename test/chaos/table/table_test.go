package table

import (
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var values []time.Duration
	for n := range 100 {
		values = append(values, time.Duration(100-n))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %g is %d, want %d", q, got, want)
		}
	}
	if got := Quantile(values[:1], 0.5); got != 100 {
		t.Errorf("the median of one value is %d, want it", got)
	}
}

func TestWrite(t *testing.T) {
	var text strings.Builder
	err := Write(&text, []Run{
		{Mode: "3 required", Fault: "kill", Outage: time.Second, Detected: 100 * time.Millisecond, Promoted: 300 * time.Millisecond, Writes: 10, Reason: "postmaster ended", Moved: true},
		{Mode: "3 async", Fault: "kill", Outage: 5 * time.Second, Writes: 7, Lost: 2, Problem: "2 lost"},
		{Mode: "3 required", Fault: "kill", Outage: 3 * time.Second, Writes: 20, Reason: "postmaster ended", TwoWriters: time.Millisecond * 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	want := [][]string{
		{"3", "required", "kill", "2", "1", "1.00", "3.00", "3.00", "0.10", "0.30", "30", "0", "0.02", "0.00", "0.00", "0.00", "0", "postmaster", "ended"},
		{"3", "async", "kill", "1", "0", "5.00", "5.00", "5.00", "0.00", "0.00", "7", "2", "0.00", "0.00", "0.00", "0.00", "1"},
	}
	if len(lines) != 1+len(want) {
		t.Fatalf("%d lines, want a heading and %d: %s", len(lines), len(want), text.String())
	}
	for i, fields := range want {
		if got := strings.Fields(lines[i+1]); strings.Join(got, " ") != strings.Join(fields, " ") {
			t.Errorf("line %q, want %q", got, fields)
		}
	}
}
