// Package faults breaks the controller at every place where that may matter and
// sees that nothing is lost, doubled or left behind. It runs the binaries that
// have fault points (`make faults`), each trial in a home of its own; without
// -args -full it takes a part that the seed chooses.
//
//	go test -tags e2e ./hack/faults/ -run 'TestKill/tmux.create:during/change' -args -full -seed 7
package faults
