#!/bin/sh
# Writes all that is generated: deep copies and definitions from the types of
# api/v1alpha1, then the editors' schema and the reference pages from those.
set -eu
cd "$(dirname "$0")/.."

go tool -modfile=hack/tools/go.mod controller-gen \
	object crd paths=./api/... output:crd:dir=config/crd
mkdir -p config/schema docs/reference
go run ./hack/gen
go test -count=1 -run '^TestDocs$' ./cmd/skcctl -update
