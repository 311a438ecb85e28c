package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Unmount unmounts everything below a directory, the innermost first. A mount
// that is still used is detached: it goes when its last user does.
func Unmount(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, point := range points {
		err = unix.Unmount(point, 0)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(point, unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	if points, err = mountsBelow(dir); err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("still mounted: %s", strings.Join(points, ", "))
	}
	return nil
}

func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data), dir), nil
}

// parseMounts returns the mount points below dir, the latest mount first.
func parseMounts(mountinfo, dir string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// DetachLoops frees the loop devices whose files are below a directory.
func DetachLoops(dir string) error {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range backing {
		target, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(target), dir+"/") {
			continue
		}
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			if _, gone := os.Stat(file); errors.Is(gone, fs.ErrNotExist) {
				continue
			}
			return fmt.Errorf("losetup -d %s: %w: %s", device, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
