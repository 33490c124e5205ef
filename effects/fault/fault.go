// Package fault names every step at which a crash matters, so that tests can
// kill the process there, fail a call, or hold it. Only a build with the tag
// skcfaults can do any of it; in every other build a Point is empty, its calls
// vanish, and the binary does not even hold the names.
//
// A test build reads SKC_FAULT: comma-separated items of the form
//
//	<point>:<before|during|after>=<action>[@n|@n+]   the n-th time (1 when left out), or from then on
//	<point>=<action>[@n|@n+]                         short for <point>:after
//	calls=<action>[@n|@n+]                           the n-th call of the file layer
//
// where action is kill (SIGKILL to itself), EIO, ENOSPC, EMFILE, EROFS, EDQUOT,
// or a duration to hold for, as 200ms. An errno is returned as the step's
// error: at :before nothing was done yet, at :after all of it was. Each time it
// says "SKC_FAULT: <place>" on standard error.
package fault

// Phase is the place within a step.
type Phase string

// The three places of a step. During is after the effect began and before it
// is known to have ended: between the write and the rename, between the
// command and its answer.
const (
	Before Phase = "before"
	During Phase = "during"
	After  Phase = "after"
)
