#!/usr/bin/env bash
# Run every fuzz target of the tree for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-1m}
grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r pkg; do
	grep -h '^func Fuzz' "$pkg"/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/' | while read -r target; do
		echo "fuzz $pkg $target for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x "$pkg" </dev/null
	done
done
