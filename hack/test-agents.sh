#!/usr/bin/env bash
# Runs the agents' tests with the PostgreSQL of one of the local cluster's images, in its file system: hack/test-agents.sh
# IMAGE, such as postgres-17, and flags of the tests. Root on Linux.
set -euo pipefail
cd "$(dirname "$0")/.."

tree=$(bin/cluster image tree "$1")
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch"/{layer,root,data}
chmod 755 "$scratch"
chmod 1777 "$scratch/data"
go test -c -o "$scratch/runner.test" ./instance/runner

# The mounts end with their namespace. What is written into the image's file system is kept in memory; databases are not.
unshare --mount --propagation private sh -euc '
  scratch=$1 tree=$2; shift 2
  mount -t tmpfs tmpfs "$scratch/layer"
  mkdir "$scratch/layer/upper" "$scratch/layer/work"
  mount -t overlay -o "lowerdir=$tree,upperdir=$scratch/layer/upper,workdir=$scratch/layer/work" overlay "$scratch/root"
  cp "$scratch/runner.test" "$scratch/root/usr/local/bin/runner.test"
  mount -t proc proc "$scratch/root/proc"
  mount --bind /dev "$scratch/root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$scratch/root/dev/shm"
  mount --bind "$scratch/data" "$scratch/root/tmp"
  exec chroot "$scratch/root" /bin/sh -c "cd /tmp && exec /usr/local/bin/runner.test \"\$@\"" sh "$@"
' sh "$scratch" "$tree" "$@"
