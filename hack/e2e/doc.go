//go:build e2e

// Package e2e proves skc from outside: the built binaries, files, tmux and
// /proc, and nothing else. `make e2e` runs it. Each test names the entry of the
// bug log, the case or the reliability goal that it holds; coverage_test.go
// sees that none is forgotten.
package e2e
