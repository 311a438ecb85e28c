package fence

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/instance/pg"
)

// How often a sentinel looks.
const (
	// looking is how late it may learn of a licence that was revoked.
	looking = 250 * time.Millisecond
	// insisting is how often it kills what starts without a licence.
	insisting = 50 * time.Millisecond
)

// What it does so long before the end of the licence.
const (
	// quitLead lets PostgreSQL end by itself, so that its clients are told.
	quitLead = 200 * time.Millisecond
	// killLead lets processes die, which takes the kernel a moment.
	killLead = 50 * time.Millisecond
)

// deed is what a sentinel does.
type deed int

const (
	rest deed = iota
	quit
	kill
)

// judge says what to do about a watched postmaster, and when to look again.
func judge(now, licence time.Duration, watched int64) (deed, time.Duration) {
	if watched == Nobody {
		return rest, looking
	}
	left := licence - now
	switch {
	case left > quitLead:
		return rest, min(looking, left-quitLead)
	case left > killLead:
		return quit, min(insisting, left-killLead)
	default:
		return kill, insisting
	}
}

// descriptor of the page, the first file that a process inherits besides its standard ones.
const descriptor = 3

// Stand is the sentinel's life: it ends PostgreSQL, which works in a data directory, when its licence ends, and returns
// when the agent is gone.
func Stand(dir string) error {
	// The agent decides when it ends, not who stops the container.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	page, err := open(os.NewFile(descriptor, "page"))
	if err != nil {
		return err
	}
	s := &sentinel{page: page, dir: dir}
	for {
		if os.Getppid() != int(page.agent.Load()) {
			return s.orphaned()
		}
		sleepUntil(Now() + s.look())
	}
}

// sleepUntil ends with the machine's suspension, if that lasts longer. A signal may end it early.
func sleepUntil(end time.Duration) {
	at := unix.NsecToTimespec(int64(end))
	_ = unix.ClockNanosleep(unix.CLOCK_BOOTTIME, unix.TIMER_ABSTIME, &at, nil)
}

type sentinel struct {
	page *Page
	dir  string
	// quitted is the postmaster that was asked to end.
	quitted int64
	// killed: it was killed, or nobody was there.
	killed bool
}

func (s *sentinel) look() time.Duration {
	now, watched := Now(), s.page.watched.Load()
	s.page.looked.Store(int64(now))
	do, next := judge(now, time.Duration(s.page.licence.Load()), watched)
	switch do {
	case quit:
		s.quit(watched)
	case kill:
		s.kill()
	default:
		s.quitted, s.killed = Nobody, false
	}
	return next
}

func (s *sentinel) quit(watched int64) {
	if watched == s.quitted || watched == Starting {
		return
	}
	s.quitted = watched
	s.count()
	if err := pg.QuitWorking(s.dir, int(watched)); err != nil {
		complain(err)
	}
}

// kill ends every process that may belong to PostgreSQL. In a container of its own that is every other one: what
// PostgreSQL started may have left its directory.
func (s *sentinel) kill() {
	if !s.killed && s.quitted == Nobody {
		s.count()
	}
	s.killed = true
	if s.page.agent.Load() == 1 && os.Getppid() == 1 {
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			complain(err)
		}
		return
	}
	if _, err := pg.KillWorking(s.dir); err != nil {
		complain(err)
	}
}

func (s *sentinel) count() {
	s.page.fenced.Add(1)
	fmt.Fprintln(os.Stderr, "sentinel: the licence to take writes ends, and so does PostgreSQL")
}

// orphaned is for an agent that died without its container: nobody renews the licence, or stops PostgreSQL.
func (s *sentinel) orphaned() error {
	if s.page.watched.Load() == Nobody {
		return nil
	}
	_, err := pg.KillWorking(s.dir)
	return err
}

func complain(err error) { fmt.Fprintln(os.Stderr, "sentinel:", err) }
