#!/bin/sh
# Fails when what is generated is not what hack/update-codegen.sh writes. It
# compares with the files as they are, committed or not, and leaves them so.
set -eu
cd "$(dirname "$0")/.."

generated='api/v1alpha1/zz_generated.deepcopy.go config/crd config/schema docs/reference docs/skcctl.md docs/exit-codes.md'
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
tar -cf "$before/before.tar" $generated
mkdir "$before/tree"
tar -xf "$before/before.tar" -C "$before/tree"

hack/update-codegen.sh

status=0
for path in $generated; do
	diff -ru "$before/tree/$path" "$path" >&2 || status=1
done
if [ $status -ne 0 ]; then
	tar -xf "$before/before.tar"
	echo "generated files are out of date: run hack/update-codegen.sh" >&2
fi
exit $status
