// Package preflight makes sure that the machine can carry the cluster, or says
// exactly what it lacks.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// needs maps what the cluster runs to the Debian package that has it. The
// plug-ins' place is part of containerd's configuration.
var needs = []struct{ file, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/lib/cni/host-local", "containernetworking-plugins"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"mkfs.xfs", "xfsprogs"},
	{"xfs_growfs", "xfsprogs"},
	{"ip", "iproute2"},
	{"mmdebstrap", "mmdebstrap"},
	{"nsenter", "util-linux"},
	{"losetup", "mount"},
}

// Elsewhere says what to do on a machine that cannot carry the cluster.
const Elsewhere = "use another Kubernetes instead: set KUBECONFIG to a cluster with cert-manager and run make install deploy"

// Check verifies the machine and installs missing packages with apt where that
// is possible, telling the user on out. It returns what it found.
func Check(ctx context.Context, out io.Writer) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("the local cluster needs Linux, this is %s; %s", runtime.GOOS, Elsewhere)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("the local cluster needs root for namespaces, mounts and cgroups: run it with sudo, or " + Elsewhere)
	}
	missing := missingPackages(lookup)
	if len(missing) == 0 {
		return "nothing missing", nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("these are missing and there is no apt-get to install them: %s; install them with this system's package manager (Debian names), or %s",
			strings.Join(missing, " "), Elsewhere)
	}
	fmt.Fprintf(out, "installing with apt-get: %s\n", strings.Join(missing, " "))
	if err := install(ctx, missing); err != nil {
		return "", err
	}
	if still := missingPackages(lookup); len(still) > 0 {
		return "", fmt.Errorf("apt-get installed %s, but what they should hold is still missing; install them by hand, or %s",
			strings.Join(still, " "), Elsewhere)
	}
	return "installed " + strings.Join(missing, " "), nil
}

func install(ctx context.Context, packages []string) error {
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	if apt(ctx, args...) == nil {
		return nil
	}
	// The lists may be absent or too old: once more with fresh ones.
	if err := apt(ctx, "update"); err != nil {
		return err
	}
	return apt(ctx, args...)
}

func apt(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "apt-get", args...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func missingPackages(present func(file string) bool) []string {
	var missing []string
	for _, need := range needs {
		if !present(need.file) && !slices.Contains(missing, need.pkg) {
			missing = append(missing, need.pkg)
		}
	}
	return missing
}

func lookup(file string) bool {
	if _, err := exec.LookPath(file); err == nil {
		return true
	}
	// Users' PATH often lacks the administrator's directories.
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := exec.LookPath(dir + file); err == nil {
			return true
		}
	}
	return false
}
