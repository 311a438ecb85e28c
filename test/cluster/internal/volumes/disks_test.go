package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// testDisks needs root, loop devices and XFS; a machine without them has no
// local cluster either.
func testDisks(t *testing.T) *Disks {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	disks, err := NewDisks(filepath.Join(t.TempDir(), "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Cleanup(context.Background(), disks.dir); err != nil {
			t.Errorf("cleanup: %v", err)
		}
	})
	return disks
}

// fill writes to a new file until the disk is full and returns the error and
// the number of bytes that fitted.
func fill(t *testing.T, path string) (written int64, err error) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	// Allocation without content: it is what ENOSPC is decided on, and the
	// image below stays sparse.
	const chunk = 16 << 20
	for written < 8<<30 {
		if err := unix.Fallocate(int(file.Fd()), 0, written, chunk); err != nil {
			return written, err
		}
		written += chunk
	}
	t.Fatal("the volume is not bounded")
	return written, nil
}

func capacity(t *testing.T, path string) int64 {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Blocks) * stat.Bsize
}

func TestDiskLife(t *testing.T) {
	disks := testDisks(t)
	ctx := t.Context()
	const name = "pvc-1"
	for range 2 { // a repeated call finds the same volume
		if err := disks.Create(ctx, name, MinBytes); err != nil {
			t.Fatal(err)
		}
		marker := filepath.Join(disks.Path(name), "marker")
		if err := os.WriteFile(marker, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	filler := filepath.Join(disks.Path(name), "filler")
	small, err := fill(t, filler)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling a volume ends with %v, want ENOSPC", err)
	}
	if small > MinBytes {
		t.Fatalf("%d bytes fitted into a volume of %d", small, MinBytes)
	}

	open, err := os.OpenFile(filler, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	for range 2 {
		if err := disks.Grow(ctx, name, 3*MinBytes); err != nil {
			t.Fatal(err)
		}
	}
	if got := capacity(t, disks.Path(name)); got < 5*MinBytes/2 {
		t.Errorf("grown file system has %d bytes, want nearly %d", got, 3*MinBytes)
	}
	if err := unix.Fallocate(int(open.Fd()), 0, small, MinBytes); err != nil {
		t.Errorf("a file that was open while the volume grew: %v", err)
	}
	if err := disks.Grow(ctx, name, MinBytes); err != nil {
		t.Errorf("growing to less than it has: %v", err)
	}
	if err := open.Close(); err != nil {
		t.Error(err)
	}

	for range 2 {
		if err := disks.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	expectEmpty(t, disks)
}

func TestDiskSurvivesRestart(t *testing.T) {
	disks := testDisks(t)
	ctx := t.Context()
	const name = "pvc-2"
	if err := disks.Create(ctx, name, MinBytes); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(disks.Path(name), "marker")
	if err := os.WriteFile(marker, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Cleanup(ctx, disks.dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(disks.Path(name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unmounted volume still has its data directory (%v): a pod could write below the mount", err)
	}
	if err := disks.Mount(ctx, name); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(marker); err != nil || string(content) != "kept" {
		t.Errorf("content after a restart: %q, %v", content, err)
	}
}

func TestDiskOfMissingImage(t *testing.T) {
	disks := testDisks(t)
	if err := disks.Mount(t.Context(), "absent"); err == nil || !strings.Contains(err.Error(), "absent.img") {
		t.Errorf("mounting a volume without image gives %v, want an error that names the file", err)
	}
	if err := disks.Grow(t.Context(), "absent", MinBytes); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("growing a volume without image gives %v, want not exist", err)
	}
}

func TestInterruptedFormatIsRepeated(t *testing.T) {
	disks := testDisks(t)
	const name = "pvc-3"
	if err := os.WriteFile(disks.image(name)+".partial", []byte("half a file system"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := disks.Create(t.Context(), name, MinBytes); err != nil {
		t.Fatal(err)
	}
	if err := disks.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	expectEmpty(t, disks)
}

func TestTooLargeForTheMachine(t *testing.T) {
	disks := testDisks(t)
	if err := disks.Create(t.Context(), "pvc-4", 1<<62); err == nil {
		t.Fatal("an absurd size was accepted")
	}
	expectEmpty(t, disks)
}

// expectEmpty fails when the directory, a mount or a loop device is left.
func expectEmpty(t *testing.T, disks *Disks) {
	t.Helper()
	entries, err := os.ReadDir(disks.dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(disks.dir))
	if err != nil || len(mounts) != 0 {
		t.Errorf("left mounts: %v, %v", mounts, err)
	}
	list, err := output(t.Context(), "losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE")
	if left := devicesBelow(list, disks.dir); err != nil || len(left) != 0 {
		t.Errorf("left loop devices: %v, %v", left, err)
	}
}
