// Package history checks that lifecycle requests are done once. Clients send
// random requests over the control, repeat them, drop their answers and use one
// key for two things, while skcd is killed; at the end all of it is asked again.
// A model of sessions and of the ledger must explain every answer and every
// program that was started, which the programs themselves write down
// (`make history`).
//
// The seed of a run is printed. Which client comes first is up to the machine,
// so a history that cannot be explained is also kept, and can be judged again:
//
//	go test -tags e2e ./hack/history/ -run TestHistories -args -seed 7 -only 12
//	go test -tags e2e ./hack/history/ -run TestKept -args -kept FILE
package history
