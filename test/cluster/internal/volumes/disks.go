// Package volumes serves persistent volumes of the local cluster as sparse XFS
// images, each mounted on the node that owns it: a full volume is really full,
// and it grows while in use.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Disks keeps the image files of one node and their mounts in a directory.
// Its methods may be repeated and called concurrently.
type Disks struct {
	dir string
	mu  sync.Mutex
}

// NewDisks returns the disks of a directory, which it creates. Mounts are known
// by their paths, so the directory must be given the same way each time.
func NewDisks(dir string) (*Disks, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err = os.MkdirAll(absolute, 0o711); err != nil {
		return nil, fmt.Errorf("volume directory: %w", err)
	}
	// The kernel lists mounts by their real paths.
	absolute, err = filepath.EvalSymlinks(absolute)
	if err != nil {
		return nil, err
	}
	return &Disks{dir: absolute}, nil
}

// Path is the directory a pod may write to. It exists only while the volume is
// mounted: the kubelet then refuses to start a pod, instead of letting it write
// into the directory below the missing mount.
func (d *Disks) Path(name string) string { return filepath.Join(d.mountPoint(name), "data") }

func (d *Disks) mountPoint(name string) string { return filepath.Join(d.dir, name) }

func (d *Disks) image(name string) string { return filepath.Join(d.dir, name+".img") }

// Create makes and mounts a volume of the given size in bytes; an existing one
// keeps its content and its size.
func (d *Disks) Create(ctx context.Context, name string, bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := os.Stat(d.image(name)); errors.Is(err, os.ErrNotExist) {
		if err = d.format(ctx, name, bytes); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return d.mount(ctx, name)
}

// format writes a file system into a new image, which gets its name only when
// it is whole.
func (d *Disks) format(ctx context.Context, name string, bytes int64) error {
	partial := d.image(name) + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(partial) }()
	if err := errors.Join(file.Truncate(bytes), file.Close()); err != nil {
		return fmt.Errorf("size the image of volume %s to %d bytes: %w", name, bytes, err)
	}
	// 64 MiB is the smallest log mkfs.xfs accepts; by default it grows with
	// the volume, and the log is the one part of the image that takes space.
	if err := run(ctx, "mkfs.xfs", "-q", "-K", "-l", "size=64m", partial); err != nil {
		return err
	}
	return os.Rename(partial, d.image(name))
}

// Mount mounts an existing volume, as is needed after the machine was started.
func (d *Disks) Mount(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mount(ctx, name)
}

func (d *Disks) mount(ctx context.Context, name string) error {
	point := d.mountPoint(name)
	if err := os.MkdirAll(point, 0o711); err != nil {
		return err
	}
	mounted, err := mountinfo.Mounted(point)
	if err != nil {
		return fmt.Errorf("is volume %s mounted: %w", name, err)
	}
	if !mounted {
		// The loop device of a mount with this option ends with the mount.
		if err := run(ctx, "mount", "-t", "xfs", "-o", "loop,noatime", d.image(name), point); err != nil {
			return err
		}
	}
	return os.MkdirAll(d.Path(name), 0o755)
}

// Grow enlarges a volume in use to the given size in bytes. A volume that is
// already larger stays as it is.
func (d *Disks) Grow(ctx context.Context, name string, bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(d.image(name))
	if err != nil {
		return err
	}
	if info.Size() < bytes {
		if err = os.Truncate(d.image(name), bytes); err != nil {
			return fmt.Errorf("enlarge the image of volume %s to %d bytes: %w", name, bytes, err)
		}
	}
	if err = d.mount(ctx, name); err != nil {
		return err
	}
	device, err := output(ctx, "losetup", "--noheadings", "--output", "NAME", "--associated", d.image(name))
	if err != nil {
		return err
	}
	if device == "" || strings.ContainsAny(device, "\n ") {
		return fmt.Errorf("volume %s should be on one loop device, but losetup answers %q", name, device)
	}
	if err := run(ctx, "losetup", "--set-capacity", device); err != nil {
		return err
	}
	return run(ctx, "xfs_growfs", d.mountPoint(name))
}

// Delete unmounts a volume and removes its image; one that is not there is no
// error.
func (d *Disks) Delete(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	point := d.mountPoint(name)
	for {
		mounted, err := mountinfo.Mounted(point)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("is volume %s mounted: %w", name, err)
		}
		if !mounted {
			break
		}
		if err := unix.Unmount(point, 0); err != nil {
			return fmt.Errorf("unmount volume %s: %w", name, err)
		}
	}
	// Remove, not RemoveAll: a directory with content was not our mount point.
	for _, path := range []string{point, d.image(name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove volume %s: %w", name, err)
		}
	}
	return nil
}

func run(ctx context.Context, program string, arguments ...string) error {
	_, err := output(ctx, program, arguments...)
	return err
}

// output runs a program and returns its output without surrounding space; an
// error carries what the program printed.
func output(ctx context.Context, program string, arguments ...string) (string, error) {
	var stderr strings.Builder
	command := exec.CommandContext(ctx, program, arguments...)
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(stdout)), nil
}
