#!/usr/bin/env bash
# The demo: from an empty machine to a replicated PostgreSQL, seen through kubectl and psql, and a manifest that is
# refused. It leaves everything running; `make demo-down` removes it. It fails if a step does not do what it shows.
set -euo pipefail
cd "$(dirname "$0")/.."

kubectl=bin/kubectl

say() { printf '\n[%3d s] %s\n' "$SECONDS" "$*"; }
# manifest prints a sample with the version that there is an image of.
manifest() { sed "s/\"16\"/\"$version\"/; s/postgres:16/postgres:$version/" "config/samples/$1"; }
# show prints a command as a user would type it, and runs it.
show() {
	printf '$ %s\n' "${*/#$kubectl/kubectl}"
	"$@"
}
fail() {
	printf '\nThe demo failed: %s\n' "$*" >&2
	printf 'The cluster is left as it is: look with bin/kubectl, remove it with `make demo-down`.\n' >&2
	exit 1
}

say "Starting a Kubernetes of our own on this machine (the first time it is compiled, which takes long)"
bin/cluster up --kubectl "$kubectl"
# No distribution has PostgreSQL 16, the manifest's version; if the stand-in cannot be built here, 17 must do.
version=16
bin/cluster image load postgres-16 || {
	version=17
	echo 'There is no image of PostgreSQL 16 here: the manifests are applied with version "17" instead.'
	bin/cluster image load postgres-17
}

say "Building the operator and installing it"
make build
# The tag is a digest of the binary, so that a new binary rolls the Deployment and an old one changes nothing.
image=registry.local/pg-operator:$(sha256sum bin/pg-operator | cut -c1-16)
make image IMG="$image"
bin/cluster image load-archive bin/pg-operator-image.tar
make deploy IMG="$image" KUBECTL="$kubectl" APPLY_FLAGS="--force-conflicts --field-manager=local-cluster" >/dev/null
"$kubectl" rollout status deployment/pg-operator --namespace pg-operator-system --timeout 3m ||
	fail "the operator does not start"

say "Applying a PostgresCluster of three instances"
"$kubectl" create namespace shop --dry-run=client --output yaml | "$kubectl" apply --server-side --filename - >/dev/null
manifest orders-db.yaml
# Admission answers as soon as its certificate is issued and trusted, a moment after the rollout.
deadline=$((SECONDS + 60))
until reply=$(manifest orders-db.yaml | "$kubectl" apply --filename - 2>&1); do
	[[ $reply == *"failed calling webhook"* && $SECONDS -lt $deadline ]] || fail "the seed manifest is refused: $reply"
done
printf '$ kubectl apply --filename config/samples/orders-db.yaml\n%s\n' "$reply"
show "$kubectl" wait pgc/orders-db --namespace shop --for condition=Ready --timeout 3m || {
	"$kubectl" get pgc/orders-db --namespace shop --output wide
	fail "orders-db is not ready"
}
show "$kubectl" get pgc --namespace shop

say "Writing through the Service orders-db-rw and reading through orders-db-ro, with psql and verified TLS"
"$kubectl" delete pod psql --namespace shop --ignore-not-found >/dev/null
manifest psql.yaml | "$kubectl" apply --filename - >/dev/null
"$kubectl" wait pod/psql --namespace shop --for jsonpath='{.status.phase}'=Succeeded --timeout 1m >/dev/null || {
	"$kubectl" logs psql --namespace shop || true
	fail "psql got no answer"
}
"$kubectl" logs psql --namespace shop

say "Applying a manifest that cannot be right"
manifest rejected.yaml
if reply=$(manifest rejected.yaml | "$kubectl" apply --filename - 2>&1); then
	fail "the manifest was accepted: $reply"
fi
[[ $reply == *spec.replicas* ]] || fail "the manifest was refused for another reason: $reply"
printf '$ kubectl apply --filename config/samples/rejected.yaml\n%s\n' "$reply"

say "Done. bin/kubectl talks to the cluster; \`make demo-down\` removes it."
