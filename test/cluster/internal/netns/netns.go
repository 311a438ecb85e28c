// Package netns makes the cluster's network: one namespace for the control
// plane with a switch, one per node, and cables that can be cut.
package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acme/pg-operator/test/cluster/internal/layout"
)

// nsfsMagic is NSFS_MAGIC of linux/magic.h.
const nsfsMagic = 0x6e736673

// Exists reports whether the name is a live network namespace. The file alone
// says nothing: it can outlive the namespace when /run is on a disk.
func Exists(name string) bool {
	var stat unix.Statfs_t
	err := unix.Statfs(layout.NamespacePath(name), &stat)
	return err == nil && stat.Type == nsfsMagic
}

// ensure makes the namespace with loopback up and the settings of a router.
func ensure(ctx context.Context, name string) error {
	if !Exists(name) {
		if err := os.Remove(layout.NamespacePath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the stale namespace file: %w", err)
		}
		if err := ip(ctx, "netns", "add", name); err != nil {
			return err
		}
	}
	if err := ip(ctx, "-n", name, "link", "set", "lo", "up"); err != nil {
		return err
	}
	return Do(name, func() error {
		for file, value := range map[string]string{
			"ipv4/ip_forward":             "1",
			"ipv4/conf/all/rp_filter":     "0",
			"ipv4/conf/default/rp_filter": "0",
			// A pod without IPv6 neighbours must not wait for them.
			"ipv6/conf/all/disable_ipv6":     "1",
			"ipv6/conf/default/disable_ipv6": "1",
		} {
			path := "/proc/sys/net/" + file
			if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("namespace %s: set %s: %w", name, path, err)
			}
		}
		return nil
	})
}

// Delete removes a namespace; one that does not exist is fine.
func Delete(ctx context.Context, name string) error {
	if Exists(name) {
		return ip(ctx, "netns", "del", name)
	}
	if err := os.Remove(layout.NamespacePath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveRoot undoes the mount that ip(8) makes for its first namespace, when no
// namespace is left.
func RemoveRoot() error {
	dir := filepath.Dir(layout.NamespacePath("any"))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return nil //nolint:nilerr // none there, or still in use
	}
	if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// Do runs a function on a thread inside the namespace. Sockets it opens belong
// to the namespace for good; goroutines it starts do not.
func Do(name string, run func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, so no other
		// goroutine ever runs in the namespace.
		runtime.LockOSThread()
		result <- enterAnd(name, run)
	}()
	return <-result
}

func enterAnd(name string, run func() error) error {
	file, err := os.Open(layout.NamespacePath(name))
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	return run()
}

// ip runs ip(8).
func ip(ctx context.Context, args ...string) error {
	_, err := output(ctx, "ip", args...)
	return err
}

// linkExists reports whether a link is there.
func linkExists(ctx context.Context, namespace, link string) bool {
	return ip(ctx, "-n", namespace, "link", "show", "dev", link) == nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
