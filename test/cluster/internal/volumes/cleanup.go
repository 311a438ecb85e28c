package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Cleanup unmounts everything below dir and frees the loop devices of files
// there. The files stay. A directory that does not exist is clean.
func Cleanup(ctx context.Context, dir string) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	absolute, err = filepath.EvalSymlinks(absolute)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(unmountBelow(absolute), detachBelow(ctx, absolute))
}

func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("list mounts below %s: %w", dir, err)
	}
	var failed []error
	// Later mounts may lie on top of earlier ones.
	for _, mount := range slices.Backward(mounts) {
		point := mount.Mountpoint
		err := unix.Unmount(point, 0)
		if errors.Is(err, unix.EBUSY) {
			// A process that is still ending has a file open; the kernel
			// finishes the unmount after it.
			err = unix.Unmount(point, unix.MNT_DETACH)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(failed...)
}

// detachBelow frees loop devices that no mount frees, for example because the
// process that made them was killed before it mounted them.
func detachBelow(ctx context.Context, dir string) error {
	list, err := output(ctx, "losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE")
	if err != nil {
		return err
	}
	var failed []error
	for _, device := range devicesBelow(list, dir) {
		err := run(ctx, "losetup", "--detach", device)
		if err != nil && attached(device) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// devicesBelow selects from losetup's list the devices of files below dir.
func devicesBelow(list, dir string) []string {
	var devices []string
	for line := range strings.SplitSeq(list, "\n") {
		device, file, found := strings.Cut(line, " ")
		if found && strings.HasPrefix(file, dir+string(filepath.Separator)) {
			devices = append(devices, device)
		}
	}
	return devices
}

func attached(device string) bool {
	_, err := os.Stat(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	return err == nil
}
