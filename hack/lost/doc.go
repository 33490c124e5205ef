// Package lost looks for lost work. Random worktrees hold what people leave in
// them; their Sessions are deleted, given another target, restored and applied
// again in random order, while skcd is killed and git cleans up. After each step
// every byte is in place or in quarantine, and every commit is reachable
// (`make lost`).
//
// The seed of a run is printed. What fails is tried again with ever fewer steps,
// and the shortest list that still fails is printed:
//
//	go test -tags e2e ./hack/lost/ -run TestNothingIsLost -args -full -seed 7
package lost
