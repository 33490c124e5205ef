#!/usr/bin/env bash
# Fail when generated files, go.mod or the format are not up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt differs; run gofmt -w on:\n%s\n' "$unformatted" >&2
	exit 1
fi
go mod tidy -diff
(cd hack/tools && go mod tidy -diff)
hack/verify-codegen.sh
