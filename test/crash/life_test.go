package crash_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// point is where an operator's life ends: at its nth write, before that reaches the server or after. At the zeroth there
// is no operator in the first place.
type point struct {
	write  int
	before bool
}

// never is no point that an operator comes to.
var never = point{write: 1 << 30}

var errCrashed = errors.New("the operator has crashed")

// life is an operator's connection. It counts writes, and ends for ever at one of them: nothing is sent after that.
// Events are not counted: they are told beside the flow, and nothing depends on them.
type life struct {
	inner http.RoundTripper
	// onWrite is called before each counted write.
	onWrite func(number int)

	mu      sync.Mutex
	end     point
	armed   bool
	writes  int
	last    time.Time
	dead    bool
	crashed chan struct{}
}

func newLife() *life { return &life{crashed: make(chan struct{}), last: time.Now()} }

func (l *life) wrap(inner http.RoundTripper) http.RoundTripper {
	l.inner = inner
	return l
}

// arm begins to count.
func (l *life) arm(end point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.end = true, end
}

// idle is how long ago the last write was.
func (l *life) idle() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last)
}

func (l *life) RoundTrip(request *http.Request) (*http.Response, error) {
	write := request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events")
	last, number, err := l.count(write)
	if err != nil {
		return nil, err
	}
	if number > 0 && l.onWrite != nil {
		l.onWrite(number)
	}
	if !last {
		return l.inner.RoundTrip(request)
	}
	defer close(l.crashed)
	if l.end.before {
		if request.Body != nil {
			_ = request.Body.Close()
		}
	} else if response, err := l.inner.RoundTrip(request); err == nil {
		_ = response.Body.Close() // Nobody learns of its result.
	}
	return nil, errCrashed
}

func (l *life) count(write bool) (last bool, number int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false, 0, errCrashed
	}
	if !write {
		return false, 0, nil
	}
	l.last = time.Now()
	if !l.armed {
		return false, 0, nil
	}
	l.writes++
	l.dead = l.writes == l.end.write
	return l.dead, l.writes, nil
}
