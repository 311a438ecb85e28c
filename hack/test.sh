#!/usr/bin/env bash
# Runs the given make targets one after the other and ends with a summary; fails if one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

for target in "$@"; do
	step "$target" make "$target"
done
summary "Tests:"
