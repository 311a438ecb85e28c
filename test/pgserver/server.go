// Package pgserver asks real PostgreSQL servers about settings: which they
// have, which values they take, and whether they start with them. Servers are
// those of this machine and those in the local cluster's images.
package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/acme/pg-operator/postgres"
)

// Server is an installed PostgreSQL server.
type Server struct {
	// Version of its programs.
	Version postgres.ServerVersion

	root     string // of an image's unpacked file system; empty for this machine's own
	bin      string // directory of the programs, below root
	uid, gid int    // whom it runs as
}

// imageUser is the user and the group of a server in an image.
const imageUser = 999

// Images are the local cluster's images with a server, one for each major version.
var Images = map[string]string{"15": "postgres-15.20", "16": "postgres-16", "17": "postgres-17", "18": "postgres-18"}

// FromImage is the server of a local cluster's image. launcher is the path of the program cluster, which builds and
// unpacks the image where its cache lacks it. Needs root on Linux.
func FromImage(ctx context.Context, launcher, major string) (Server, error) {
	image, found := Images[major]
	if !found {
		return Server{}, fmt.Errorf("no image has PostgreSQL %s", major)
	}
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, launcher, "image", "tree", image)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return Server{}, fmt.Errorf("unpack image %s: %w: %s", image, err, stderr.String())
	}
	root := strings.TrimSpace(string(out))
	return identify(ctx, Server{root: root, bin: "/usr/lib/postgresql/" + major + "/bin", uid: imageUser, gid: imageUser})
}

// Installed is the server in PATH, or the newest one where Debian's packages put it. The error is exec.ErrNotFound if
// there is none.
func Installed(ctx context.Context) (Server, error) {
	program, err := exec.LookPath("postgres")
	if err != nil {
		found, globErr := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		if globErr != nil || len(found) == 0 {
			return Server{}, fmt.Errorf("no program postgres: %w", exec.ErrNotFound)
		}
		program = found[len(found)-1]
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return Server{}, err
	}
	s := Server{bin: filepath.Dir(program), uid: os.Getuid(), gid: os.Getgid()}
	if s.uid == 0 {
		if s.uid, s.gid, err = ordinaryUser(); err != nil {
			return Server{}, err
		}
	}
	return identify(ctx, s)
}

// ordinaryUser is somebody whom PostgreSQL accepts in root's place.
func ordinaryUser() (uid, gid int, err error) {
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return 0, 0, err
		}
	}
	uid, errUID := strconv.Atoi(account.Uid)
	gid, errGID := strconv.Atoi(account.Gid)
	return uid, gid, errors.Join(errUID, errGID)
}

func identify(ctx context.Context, s Server) (Server, error) {
	out, err := s.inScratch(ctx, nil, `postgres --version`)
	if err != nil {
		return Server{}, err
	}
	s.Version, err = postgres.ParseServerVersion(out)
	return s, err
}

// enter runs a script in an image's file system, with the scratch directory under /mnt. The mounts end with it.
const enter = `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/mnt" &&
exec chroot --userspec="$2" "$0" /bin/sh -euc "$3"`

// inScratch runs a shell script as the server's user, in a new directory with the given files, and returns what it
// wrote to standard output. The script finds the server's programs in PATH.
func (s Server) inScratch(ctx context.Context, files map[string]string, script string) (string, error) {
	dir, err := os.MkdirTemp("", "pgserver-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.fill(dir, files); err != nil {
		return "", err
	}
	var command *exec.Cmd
	if s.root == "" {
		command = exec.CommandContext(ctx, "/bin/sh", "-euc", script)
		command.Dir = dir
		if os.Getuid() == 0 {
			command.SysProcAttr = &syscall.SysProcAttr{
				Credential: &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)},
			}
		}
	} else {
		command = exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", enter,
			s.root, dir, fmt.Sprintf("%d:%d", s.uid, s.gid), "cd /mnt\n"+script)
	}
	command.Env = []string{"PATH=" + s.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TZ=UTC"}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// fill writes files into a directory of the server's user.
func (s Server) fill(dir string, files map[string]string) error {
	own := func(path string) error {
		if os.Getuid() != 0 {
			return nil
		}
		return os.Chown(path, s.uid, s.gid)
	}
	if err := own(dir); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
		if err := errors.Join(own(filepath.Dir(path)), own(path)); err != nil {
			return err
		}
	}
	return nil
}
