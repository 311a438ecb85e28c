package host

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStatus(t *testing.T) {
	parent, inner := parseStatus("Name:\tpostgres\nPPid:\t412\nNSpid:\t431\t17\nThreads:\t1\n")
	if parent != 412 || inner != 17 {
		t.Errorf("parent %d and inner pid %d, want 412 and 17", parent, inner)
	}
}

func TestIsPostgres(t *testing.T) {
	for title, want := range map[string]bool{
		"postgres -D /var/lib/postgresql/data/pgdata":                 true,
		"/usr/lib/postgresql/17/bin/postgres -D /data":                true,
		"postgres: walreceiver streaming 0/3000148":                   true,
		"/agent/pg-operator instance run --cluster postgres":          false,
		"/agent/pg-operator instance sentinel postgres: walreceiver ": false,
	} {
		if got := isPostgres(title); got != want {
			t.Errorf("%q: %v, want %v", title, got, want)
		}
	}
}

func TestRole(t *testing.T) {
	for title, want := range map[string]string{
		"postgres: walreceiver streaming 0/3000148":        "walreceiver streaming 0/3000148",
		"postgres: db-1: walreceiver streaming 0/3000148":  "walreceiver streaming 0/3000148",
		"postgres: db-0: app app 10.0.0.1(4242) idle":      "app app 10.0.0.1(4242) idle",
		"postgres -D /var/lib/postgresql/data/pgdata":      "",
		"/agent/pg-operator instance sentinel postgres: x": "",
	} {
		if got := role(title); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}

// TestWithinLeavesNoThreadBehind: whatever runs after visits to other namespaces, many at a time, is where it was before.
func TestWithinLeavesNoThreadBehind(t *testing.T) {
	home := networkOf(t)
	elsewhere := []string{newNetwork(t), newNetwork(t)}
	var visits sync.WaitGroup
	for i := range 40 {
		visits.Go(func() {
			for range 20 {
				err := within(elsewhere[i%len(elsewhere)], func() error {
					if networkOf(t) == home {
						t.Error("did not leave home")
					}
					time.Sleep(time.Millisecond) // others run on other threads meanwhile
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	visits.Wait()
	var together, looks sync.WaitGroup
	together.Add(50) // so that each has a thread of its own
	for range 50 {
		looks.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			together.Done()
			together.Wait()
			if here := networkOf(t); here != home {
				t.Errorf("a thread is in %s, want %s", here, home)
			}
		})
	}
	looks.Wait()
}

// networkOf is the network namespace of the calling thread.
func networkOf(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Error(err)
	}
	return name
}

// newNetwork makes a network namespace that lasts until the test's end.
func newNetwork(t *testing.T) (path string) {
	t.Helper()
	made, ended := make(chan error), make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		runtime.LockOSThread() // for good
		path = fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		made <- unix.Unshare(unix.CLONE_NEWNET)
		<-ended
	}()
	if err := <-made; err != nil {
		t.Skipf("make a network namespace: %v", err)
	}
	return path
}
