# Sourced by the other scripts: runs named steps, times them, and sums them up in the end.
steps_summary=()
steps_failed=0

# step NAME COMMAND... runs a command and remembers how it ended. A failure does not stop the next steps.
step() {
	local name=$1 started=$SECONDS outcome=passed
	shift
	printf '\n==> %s\n' "$name"
	"$@" || outcome=FAILED
	[[ $outcome == passed ]] || steps_failed=1
	steps_summary+=("$(printf '%-24s %-7s %5d s' "$name" "$outcome" $((SECONDS - started)))")
}

# summary TITLE prints what every step came to, and is false if one failed.
summary() {
	printf '\n%s\n' "$1"
	printf '  %s\n' "${steps_summary[@]}"
	return "$steps_failed"
}
