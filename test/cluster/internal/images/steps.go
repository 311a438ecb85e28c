package images

import (
	"bytes"
	"strings"
)

// stepWriter takes a program's messages, reports the lines that name a step
// and remembers the last lines for an error.
type stepWriter struct {
	report  func(string)
	pending []byte
	last    []string
}

// tailLines is how many lines of output an error quotes.
const tailLines = 15

// Write implements io.Writer; it never fails.
func (w *stepWriter) Write(chunk []byte) (int, error) {
	w.pending = append(w.pending, chunk...)
	for {
		end := bytes.IndexAny(w.pending, "\r\n")
		if end < 0 {
			return len(chunk), nil
		}
		w.line(string(w.pending[:end]))
		w.pending = w.pending[end+1:]
	}
}

func (w *stepWriter) line(line string) {
	step, isStep := strings.CutPrefix(line, "I: ")
	switch {
	case isStep && isProgress(step):
		w.report(strings.TrimSuffix(step, "..."))
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "done") || strings.Contains(line, "%"):
		return
	}
	w.last = append(w.last, line)
	if len(w.last) > tailLines {
		w.last = w.last[1:]
	}
}

func (w *stepWriter) tail() string {
	return strings.Join(append(w.last, string(w.pending)), "\n")
}

// isProgress tells the long steps of mmdebstrap from its other information.
func isProgress(step string) bool {
	for _, prefix := range []string{"running apt-get", "downloading", "extracting", "installing", "creating"} {
		if strings.HasPrefix(step, prefix) {
			return true
		}
	}
	return false
}
