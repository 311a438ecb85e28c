package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
)

// debianPostgres makes a PostgreSQL image from the packages of a Debian suite.
type debianPostgres struct {
	suite    string
	security bool // also use the suite's security updates
	major    string
	version  string // the server's version, or the beginning of it
	// newer accepts later minor versions than version: a security suite
	// holds only its newest one.
	newer bool
	tags  []string
}

// programs are what an image must be able to run.
var programs = []string{
	"postgres", "initdb", "pg_ctl", "pg_basebackup", "pg_rewind", "pg_controldata", "psql", "pg_isready", "pgbench",
}

// unwanted are the files of packages that are never unpacked. Without LLVM the
// server runs queries without just-in-time compilation, as it does by default
// wherever that library is not installed.
var unwanted = []string{
	"/usr/share/doc/*", "/usr/share/info/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/lintian/*",
	"/usr/lib/postgresql/*/lib/bitcode/*", "/usr/lib/postgresql/*/lib/llvmjit*",
	"/usr/lib/*/libLLVM*", "/usr/lib/llvm-*", "/usr/lib/*/libz3*",
}

// prepareHook creates the user with the ids of the widespread images before any
// package does, and keeps the packages from creating a database.
const prepareHook = `set -e
echo postgres:x:999:999::/var/lib/postgresql:/bin/sh >>"$1/etc/passwd"
echo postgres:x:999: >>"$1/etc/group"
mkdir -p "$1/etc/postgresql-common"
echo create_main_cluster = false >"$1/etc/postgresql-common/createcluster.conf"`

// pruneHook removes what only package scripts and the distribution's wrappers
// of the client programs need, and the key pair that ssl-cert generates.
const pruneHook = `set -e
cd "$1"
rm -rf usr/share/perl usr/share/perl5 usr/lib/*/perl usr/lib/*/libperl.so* usr/share/postgresql-common usr/share/i18n
rm -rf usr/share/postgresql/*/man usr/lib/postgresql/*/lib/pgxs usr/lib/*/gconv usr/lib/systemd usr/lib/udev
rm -rf var/cache/* var/lib/apt/lists/* var/log/* etc/ssl/private/* etc/ssl/certs/ssl-cert-snakeoil.pem
find usr/bin -lname '*pg_wrapper' -delete
mkdir -p run/postgresql var/lib/postgresql
chown 999:999 run/postgresql var/lib/postgresql
chmod 3777 run/postgresql`

func (r debianPostgres) fingerprint() string {
	return strings.Join([]string{
		fmt.Sprintf("%+v %+v", r, postgresConfig(r.version, r.major)), strings.Join(unwanted, " "), strings.Join(programs, " "), prepareHook, pruneHook,
	}, "\x00")
}

func (r debianPostgres) build(ctx context.Context, b builder, workDir, archive string) error {
	tree, versions := filepath.Join(workDir, "root.tar"), filepath.Join(workDir, "versions")
	arguments, err := r.arguments(ctx, tree, versions)
	if err != nil {
		return err
	}
	if err = bootstrap(ctx, b, arguments); err != nil {
		return err
	}
	version, err := r.verify(versions)
	if err != nil {
		return err
	}
	b.progress(fmt.Sprintf("PostgreSQL %s from Debian %s, packing", version, r.suite))
	layer, err := layerOf(func() (io.ReadCloser, error) { return os.Open(tree) })
	if err != nil {
		return err
	}
	return write(archive, references(r.tags, version), empty.Image, runtime.GOARCH, postgresConfig(version, r.major), layer)
}

// arguments are those of an mmdebstrap that writes the file system to tree and
// the output of each program's --version to versions.
func (r debianPostgres) arguments(ctx context.Context, tree, versions string) ([]string, error) {
	mirrors, err := readMirrors("/")
	if err != nil {
		return nil, err
	}
	options, err := aptOptions(ctx)
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"--mode=root", "--format=tar", "--variant=essential", "--include=postgresql-" + r.major,
		`--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Languages "none"`,
		"--essential-hook=" + prepareHook, "--customize-hook=" + pruneHook,
		"--customize-hook=" + versionHook(r.major, versions),
	}
	for _, option := range options {
		arguments = append(arguments, "--aptopt="+option)
	}
	for _, path := range unwanted {
		arguments = append(arguments, "--dpkgopt=path-exclude="+path)
	}
	arguments = append(arguments, r.suite, tree, mirrors.archive.source(r.suite))
	if r.security {
		arguments = append(arguments, mirrors.security.source(r.suite+"-security"))
	}
	return arguments, nil
}

// versionHook runs every program inside the finished file system, which proves
// that its libraries are there.
func versionHook(major, versions string) string {
	return fmt.Sprintf(`set -e
for program in %s; do chroot "$1" /usr/lib/postgresql/%s/bin/$program --version; done >'%s'`,
		strings.Join(programs, " "), major, versions)
}

// bootstrap runs mmdebstrap and passes on the steps it reports.
func bootstrap(ctx context.Context, b builder, arguments []string) error {
	command := exec.CommandContext(ctx, "mmdebstrap", arguments...)
	var steps stepWriter
	steps.report = func(step string) { b.progress("mmdebstrap: " + step) }
	command.Stderr = &steps
	// An interrupt lets it unmount and remove its temporary directory.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	err := command.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("mmdebstrap is not installed; install Debian's package of that name")
	}
	if err != nil {
		return fmt.Errorf("mmdebstrap failed: %w; its last lines:\n%s", err, steps.tail())
	}
	return nil
}

// verify reads the versions that the programs gave of themselves, compares them
// with the wanted one and returns the server's.
func (r debianPostgres) verify(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("versions of the installed programs: %w", err)
	}
	version, err := serverVersion(string(content))
	if err != nil {
		return "", err
	}
	if version == r.version || r.newer && strings.HasPrefix(version, r.major+".") {
		return version, nil
	}
	return "", fmt.Errorf("the mirror's suite %s has PostgreSQL %s, wanted %s", r.suite, version, r.version)
}

// serverVersion finds the version in the output of `postgres --version`, for
// example "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
func serverVersion(output string) (string, error) {
	for line := range strings.SplitSeq(output, "\n") {
		if rest, found := strings.CutPrefix(line, "postgres (PostgreSQL) "); found {
			version, _, _ := strings.Cut(rest, " ")
			return version, nil
		}
	}
	return "", fmt.Errorf("no version of the server in %q", output)
}

// references are the tags of an image and its exact version, each once.
func references(tags []string, version string) []string {
	result, seen := []string{}, map[string]bool{}
	for _, tag := range append(append([]string{}, tags...), version) {
		if !seen[tag] {
			result = append(result, "docker.io/library/postgres:"+tag)
		}
		seen[tag] = true
	}
	return result
}

// postgresConfig is the configuration of a PostgreSQL image whose programs are
// in the directories of the given majors, the server's first.
func postgresConfig(version string, majors ...string) v1.Config {
	path := make([]string, 0, len(majors)+1)
	for _, major := range majors {
		path = append(path, "/usr/lib/postgresql/"+major+"/bin")
	}
	path = append(path, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	return v1.Config{
		Env: []string{
			"PATH=" + strings.Join(path, ":"),
			"LANG=C.UTF-8", "PG_MAJOR=" + majors[0], "PG_VERSION=" + version,
		},
		Cmd:        []string{"postgres"},
		User:       "999:999",
		StopSignal: "SIGINT",
		Labels:     map[string]string{"org.opencontainers.image.title": "postgres", "org.opencontainers.image.version": version},
	}
}
