// Package fence has PostgreSQL end when its licence to take writes does, even
// if the agent is frozen or gets no processor time: a sentinel, a process of
// its own, shares nothing with the agent but a page of memory.
package fence

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Values of Watch that are no process numbers.
const (
	// Nobody needs a licence: PostgreSQL does not run, or follows another instance.
	Nobody = 0
	// Starting is a primary whose process number is not known yet.
	Starting = -1
)

// words are what a page holds; both sides only use them atomically.
type words struct {
	// magic tells a page from any other file.
	magic atomic.Int64
	// agent is the agent's process number.
	agent atomic.Int64
	// licence is when the licence ends, by Now; 0 without one.
	licence atomic.Int64
	// watched is the postmaster that needs the licence.
	watched atomic.Int64
	// looked is when the sentinel last looked, by Now; fenced is how often it ended PostgreSQL.
	looked, fenced atomic.Int64
}

const (
	magic = 0x70672d66656e6365
	size  = int(unsafe.Sizeof(words{}))
)

// Page is the memory that agent and sentinel share.
type Page struct {
	*words
	file *os.File
}

// New makes a page, with no licence and nobody who needs one. Its memory belongs to no file system.
func New() (*Page, error) {
	fd, err := unix.MemfdCreate("fence", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		// Kernels before 6.3.
		fd, err = unix.MemfdCreate("fence", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the memory shared with the sentinel: %w", err)
	}
	file := os.NewFile(uintptr(fd), "fence")
	err = unix.Ftruncate(fd, int64(size))
	if err == nil {
		// A page that shrinks would end who reads it.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p, err := attach(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p.magic.Store(magic)
	p.agent.Store(int64(os.Getpid()))
	return p, nil
}

// open is the sentinel's view of a page that it inherited.
func open(file *os.File) (*Page, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("the sentinel is started by the agent alone: %w", err)
	}
	if info.Size() != int64(size) {
		return nil, errors.New("the sentinel is started by the agent alone: it inherits no page")
	}
	p, err := attach(file)
	if err != nil {
		return nil, err
	}
	if p.magic.Load() != magic {
		return nil, errors.New("the sentinel is started by the agent alone: it inherits another file")
	}
	return p, nil
}

func attach(file *os.File) (*Page, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Page{words: (*words)(unsafe.Pointer(unsafe.SliceData(memory))), file: file}, nil
}

// License sets when the licence ends: 0 for none, election.Unlimited for never.
func (p *Page) License(until time.Duration) { p.licence.Store(int64(until)) }

// Watch names the postmaster that needs the licence, Starting, or Nobody.
func (p *Page) Watch(pid int) { p.watched.Store(int64(pid)) }

// Watching tells whether there is somebody to watch.
func (p *Page) Watching() bool { return p.watched.Load() != Nobody }

// Fenced is how often the sentinel ended PostgreSQL.
func (p *Page) Fenced() int64 { return p.fenced.Load() }

// Now is the time since the machine started, which also passes while it is suspended. It is the same in all processes.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // Linux has had it for longer than the calls that Go needs.
	}
	return time.Duration(now.Nano())
}
