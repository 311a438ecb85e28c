#!/usr/bin/env bash
# Checks that the checkout is what its sources say. Arguments: the files and directories that are generated.
# Every check runs, so that one run shows all that is wrong.
set -uo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

generated=("$@")

# Generated files must be committed as the generators write them; a new one must not be missing from git.
check_generated() {
	make generate manifests || return
	git diff --exit-code -- "${generated[@]}" && untracked=$(git ls-files --others --exclude-standard -- "${generated[@]}") || {
		echo "Generated files differ from what is committed: run \`make generate manifests\` and commit the result." >&2
		return 1
	}
	[[ -z $untracked ]] && return
	echo "Generated files are not in git: $untracked" >&2
	return 1
}

check_tidy() {
	local module failed=0
	for module in . test/cluster hack/tools; do
		(cd "$module" && go mod tidy -diff) || {
			echo "$module/go.mod is not tidy: run \`go mod tidy\` there." >&2
			failed=1
		}
	done
	return "$failed"
}

# Every kustomization that users apply must build.
check_kustomize() {
	local dir
	for dir in config/crd config/policy config/default; do
		"$KUSTOMIZE" build "$dir" >/dev/null || return
	done
}

# The database of vulnerabilities is on the network; without it there is nothing to check against.
check_vulnerabilities() {
	local output status
	output=$("$GOVULNCHECK" ./... 2>&1)
	status=$?
	if [[ $status -ne 0 && $output == *"fetching vulnerabilities"* ]]; then
		echo "Skipped: the vulnerability database is out of reach (${output##*fetching vulnerabilities: })"
		return
	fi
	printf '%s\n' "$output"
	return "$status"
}

step "generated files" check_generated
step "go.mod files" check_tidy
step "kustomize" check_kustomize
step "lint" make lint
step "known vulnerabilities" check_vulnerabilities
summary "Verification:"
