// The runtime reads how many processors its cgroup allows and looks again every
// now and then: a tenth of the launcher's whole life, for one thread of work.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command skc-launch is what tmux starts in a pane: it becomes the user's
// program as its launch file says. It is not for people to call. See package
// child for what it does and for its exit codes.
package main

import (
	"os"
	"syscall"

	"skc.dev/skc/effects/launch/child"
	"skc.dev/skc/effects/launch/plan"
)

func main() {
	if len(os.Args) != 2 {
		_, _ = os.Stderr.WriteString("usage: skc-launch FILE\n")
		os.Exit(plan.ExitLauncher)
	}
	os.Exit(child.Run(os.Args[1], syscall.Environ()))
}
