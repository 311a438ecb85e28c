package fence

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// TestMain lets the tests' program be a sentinel, and an agent.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "sentinel" {
		if err := Stand(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		if err := agent(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestJudge(t *testing.T) {
	const end = time.Hour
	for name, tc := range map[string]struct {
		now, licence time.Duration
		watched      int64
		want         deed
		next         time.Duration
	}{
		"nobody to watch":    {end, 0, Nobody, rest, looking},
		"unlimited":          {end, math.MaxInt64, 7, rest, looking},
		"far away":           {end - time.Minute, end, 7, rest, looking},
		"just before":        {end - quitLead - time.Millisecond, end, 7, rest, time.Millisecond},
		"soon":               {end - quitLead, end, 7, quit, insisting},
		"very soon":          {end - killLead - time.Millisecond, end, 7, quit, time.Millisecond},
		"now":                {end - killLead, end, 7, kill, insisting},
		"over":               {end + time.Minute, end, 7, kill, insisting},
		"no licence":         {end, 0, 7, kill, insisting},
		"starts without one": {end, 0, Starting, kill, insisting},
	} {
		if got, next := judge(tc.now, tc.licence, tc.watched); got != tc.want || next != tc.next {
			t.Errorf("%s: %d after %v, want %d after %v", name, got, next, tc.want, tc.next)
		}
	}
}

// TestOpen gives a sentinel what is no page.
func TestOpen(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err = open(file); err == nil {
			t.Error("a file is taken for a page")
		}
		if err = file.Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(page.file); err != nil {
		t.Error(err)
	}
	if err := page.file.Truncate(1); err == nil {
		t.Error("a page can be made smaller, which would end the sentinel")
	}
}

// guarded is a guard whose sentinel looks, and a process that works in the data directory.
func guarded(t *testing.T) (g *Guard, dir string, victim *exec.Cmd) {
	t.Helper()
	dir = t.TempDir()
	g = NewGuard([]string{"/proc/self/exe", "sentinel", dir}, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	await(t, "a sentinel looks", func() bool { return g.Awake() == nil })
	return g, dir, sleeper(t, dir)
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for: %s", what)
		}
	}
}

// sleeper is a process that ends when it is told to, or killed.
func sleeper(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// end waits for a process's end, and returns when it was and by which signal.
func end(t *testing.T, cmd *exec.Cmd) (time.Duration, syscall.Signal) {
	t.Helper()
	_ = cmd.Wait()
	return Now(), cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

func alive(cmd *exec.Cmd) bool { return cmd.Process.Signal(unix.Signal(0)) == nil }

// late is how much after its time something may happen on a busy machine: the margin of a Lease is more.
const late = 400 * time.Millisecond

func TestEndOfLicence(t *testing.T) {
	g, dir, victim := guarded(t)
	other, bystander := sleeper(t, dir), sleeper(t, t.TempDir())
	g.License(Now() + time.Hour)
	g.Watch(victim.Process.Pid)
	until := Now() + 700*time.Millisecond
	g.License(until)
	at, by := end(t, victim)
	if by != syscall.SIGQUIT || at < until-quitLead || at > until+late {
		t.Errorf("ended %v before the end of its licence, by %v", until-at, by)
	}
	if at, by = end(t, other); by != syscall.SIGKILL || at < until-killLead {
		t.Errorf("another one of the database's processes ended %v before the end of the licence, by %v", until-at, by)
	}
	if !alive(bystander) {
		t.Error("a process of somebody else was killed")
	}
	if n := g.Fenced(); n != 1 {
		t.Errorf("counts %d ends", n)
	}
	if _, by = end(t, sleeper(t, dir)); by != syscall.SIGKILL {
		t.Errorf("what starts without a licence ended by %v", by)
	}
}

func TestRevoked(t *testing.T) {
	g, dir, victim := guarded(t)
	g.License(math.MaxInt64)
	g.Watch(Starting)
	looked := g.looked.Load()
	await(t, "the sentinel looks again", func() bool { return g.looked.Load() != looked })
	if !alive(victim) {
		t.Fatal("killed in spite of its licence")
	}
	g.License(0)
	if _, by := end(t, victim); by != syscall.SIGKILL {
		t.Errorf("ended by %v", by)
	}
	g.Watch(Nobody)
	await(t, "the sentinel rests", func() bool {
		looked = g.looked.Load()
		return Now()-time.Duration(looked) < looking
	})
	replica := sleeper(t, dir)
	await(t, "the sentinel looks twice more", func() bool { return g.looked.Load() > looked+int64(looking) })
	if !alive(replica) {
		t.Error("a replica was killed for want of a licence")
	}
}

// TestSentinelDies kills the sentinel, and needs it afterwards.
func TestSentinelDies(t *testing.T) {
	g, dir, victim := guarded(t)
	g.License(Now() + time.Hour)
	g.Watch(victim.Process.Pid)
	first := sentinels(t, dir)
	if len(first) != 1 {
		t.Fatalf("sentinels %v", first)
	}
	if err := unix.Kill(first[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "another sentinel looks", func() bool {
		now := sentinels(t, dir)
		return len(now) == 1 && now[0] != first[0] && g.Awake() == nil
	})
	if !alive(victim) {
		t.Error("killed though it has a licence")
	}
	g.License(0)
	if _, by := end(t, victim); by != syscall.SIGKILL {
		t.Errorf("ended by %v", by)
	}
}

// sentinels are those of a directory.
func sentinels(t *testing.T, dir string) []int {
	t.Helper()
	return processes(t, func(proc string) bool {
		line, err := os.ReadFile(proc + "/cmdline")
		return err == nil && strings.HasSuffix(string(line), "\x00sentinel\x00"+dir+"\x00")
	})
}

// workers are the processes that work in a directory.
func workers(t *testing.T, dir string) []int {
	t.Helper()
	return processes(t, func(proc string) bool {
		cwd, err := os.Readlink(proc + "/cwd")
		return err == nil && cwd == dir
	})
}

func processes(t *testing.T, match func(proc string) bool) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && match("/proc/"+e.Name()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestSentinelWithoutPage(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", "sentinel", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "started by the agent alone") {
		t.Errorf("%v: %s", err, out)
	}
}

// agent is one that has a database in a directory and somebody else's process elsewhere, both of which hold its fourth
// file, and a licence for a second. It says when that ends, and which process is the other one.
func agent(dir string) error {
	held := os.NewFile(3, "held")
	unix.CloseOnExec(3)
	g := NewGuard([]string{"/proc/self/exe", "sentinel", dir}, logr.Discard())
	go g.Run(context.Background())
	tick, deadline := time.NewTicker(time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for g.Awake() != nil {
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("no sentinel: %w", g.Awake())
		}
	}
	other := 0
	for _, where := range []string{"/", dir} {
		cmd := exec.Command("sleep", "60")
		cmd.Dir, cmd.ExtraFiles = where, []*os.File{held}
		if err := cmd.Start(); err != nil {
			return err
		}
		if g.Watch(cmd.Process.Pid); other == 0 {
			other = cmd.Process.Pid
		}
	}
	_ = held.Close()
	until := Now() + time.Second
	g.License(until)
	fmt.Println(int64(until), other)
	select {}
}

// begun is an agent that runs.
type begun struct {
	cmd *exec.Cmd
	// until is when its licence ends; other is a process that is not its database's, by a number of its namespace's.
	until time.Duration
	other int
	// held is open as long as a process lives that it started.
	held *os.File
}

func begin(t *testing.T, attributes *syscall.SysProcAttr) begun {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := begun{cmd: exec.Command("/proc/self/exe", "agent", t.TempDir()), held: read}
	b.cmd.ExtraFiles, b.cmd.SysProcAttr, b.cmd.Stderr = []*os.File{write}, attributes, os.Stderr
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = b.cmd.Start(); err != nil {
		if attributes != nil {
			t.Skipf("cannot make a process namespace: %v", err)
		}
		t.Fatal(err)
	}
	_ = write.Close()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		_ = read.Close()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &b.until, &b.other); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestContainer freezes an agent that is the first process of its namespace; everything else in there must end.
func TestContainer(t *testing.T) {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
	}
	b := begin(t, attributes)
	if err := b.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, b.held); err != nil {
		t.Fatal(err)
	}
	if now := Now(); now > b.until+late || now < b.until-quitLead {
		t.Errorf("the last process ended %v before the end of the licence", b.until-now)
	}
	if !alive(b.cmd) {
		t.Error("the agent ended, too")
	}
}

// TestAgentDies kills an agent outside of a container, whose children go on without it.
func TestAgentDies(t *testing.T) {
	b := begin(t, nil)
	t.Cleanup(func() { _ = unix.Kill(b.other, unix.SIGKILL) })
	dir := b.cmd.Args[2]
	if len(sentinels(t, dir)) != 1 || len(workers(t, dir)) != 1 {
		t.Fatalf("sentinels %v, databases %v", sentinels(t, dir), workers(t, dir))
	}
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "the database and the sentinel have ended", func() bool {
		return len(workers(t, dir)) == 0 && len(sentinels(t, dir)) == 0
	})
	if err := unix.Kill(b.other, 0); err != nil {
		t.Errorf("somebody else's process: %v", err)
	}
}
