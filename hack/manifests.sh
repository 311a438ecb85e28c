#!/usr/bin/env bash
# Prints config/default with another image. Arguments: the kustomize binary, the image, components of config/.
# The checkout is not edited: the image is set in an overlay that lives as long as this script.
set -euo pipefail
kustomize=$1 image=$2 components=("${@:3}")
cd "$(dirname "$0")/.."

mkdir -p bin
overlay=$(mktemp -d bin/overlay.XXXXXX)
trap 'rm -r "$overlay"' EXIT
echo 'resources: [../../config/default]' >"$overlay/kustomization.yaml"
for component in "${components[@]}"; do
	(cd "$overlay" && "$kustomize" edit add component "../../config/$component")
done
(cd "$overlay" && "$kustomize" edit set image "pg-operator=$image")
manifests=$("$kustomize" build "$overlay")
[[ $manifests == *"image: $image"* ]] || {
	echo "config/default has no image named pg-operator, so $image stands nowhere in it" >&2
	exit 1
}
printf '%s\n' "$manifests"
