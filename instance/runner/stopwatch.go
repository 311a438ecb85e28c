package runner

import (
	"fmt"
	"strings"
	"time"
)

// stopwatch notes when the steps of something were done, for the log.
type stopwatch struct {
	begun time.Time
	steps []string
}

// note notes a step that was just done.
func (s *stopwatch) note(step string) {
	s.steps = append(s.steps, fmt.Sprintf("%s %dms", step, time.Since(s.begun).Milliseconds()))
}

// String lists the steps with the time since the begin.
func (s *stopwatch) String() string { return strings.Join(s.steps, ", ") }
