package lifecycle

import "slices"

// Reason says why a request was not served (1.3). The set is closed: nothing
// here writes another, on the wire, in an audit row or in the ledger.
type Reason string

const (
	ReasonUnauthorized        Reason = "unauthorized"         // the token, or the chat is not the paired one
	ReasonRateLimited         Reason = "rate_limited"         // too many creates of the chat
	ReasonDuplicateConflict   Reason = "duplicate_conflict"   // the key was used for another request
	ReasonInvalidTarget       Reason = "invalid_target"       // the request cannot be meant as it is
	ReasonAmbiguousTarget     Reason = "ambiguous_target"     // several sessions match; candidates are given
	ReasonSpawnFailed         Reason = "spawn_failed"         // the session did not start
	ReasonDiscoveryTimeout    Reason = "discovery_timeout"    // the session was not found in time
	ReasonReadinessTimeout    Reason = "readiness_timeout"    // no answer, or not ready, in time
	ReasonCloseRefused        Reason = "close_refused"        // the session is not provably ours
	ReasonNotFound            Reason = "not_found"            // no session matches
	ReasonTerminalUncertain   Reason = "terminal_uncertain"   // whether the effect took place is not known
	ReasonUnsupportedPlatform Reason = "unsupported_platform" // the multiplexer cannot prove identity
)

// Reasons is the closed set, in the order of 1.3.
var Reasons = []Reason{
	ReasonUnauthorized, ReasonRateLimited, ReasonDuplicateConflict, ReasonInvalidTarget, ReasonAmbiguousTarget, ReasonSpawnFailed,
	ReasonDiscoveryTimeout, ReasonReadinessTimeout, ReasonCloseRefused, ReasonNotFound, ReasonTerminalUncertain, ReasonUnsupportedPlatform,
}

// Known says whether the reason is of the closed set.
func (r Reason) Known() bool { return slices.Contains(Reasons, r) }

// Messages that other programs match: of the gates (1.6), the duplicates (1.7),
// the transport (1.1) and the generic answers (1.9). None holds anything of
// the request.
const (
	MessageInvalidTarget       = "invalid lifecycle target"                                                           // gate 1
	MessageNotPaired           = "chat not paired"                                                                    // gate 3
	MessageCloseNeedsForce     = "session_close requires force=true; graceful close is not supported"                 // gate 4
	MessagePromptUnavailable   = "startup prompt capability transport is unavailable; retry without a startup prompt" // gate 5
	MessageUnsupportedPlatform = "Remote session lifecycle is unavailable on this psmux host because SKC cannot prove immutable session identity. " +
		"No lifecycle action was performed. Use a local SKC terminal with a supported tmux provider." // gate 6
	MessageRateLimited = "create rate limit exceeded"             // gate 8
	MessageEmptyIDs    = "create lifecycle ids must be non-empty" // gate 9

	MessageConflict       = "update id reused with different body"
	MessageFailedBefore   = "previously failed; send a new update to retry"
	MessageOutcomeUnknown = "prior attempt outcome unknown; manual check" // inside; on the wire it is MessageNotProcessed
	MessageNotProcessed   = "request could not be processed"
	MessageInProgress     = "request already in progress"
	MessageTokenMismatch  = "unauthorized lifecycle frame"
	MessageEmptyRequestID = "the request id is empty"                        // ReasonInvalidTarget, by the transport
	MessageRequestIDInUse = "the request id is in use by another connection" // ReasonDuplicateConflict, by the transport
	MessageFrameTooLong   = "request frame exceeds 256 KiB"                  // of the close frame, code 1009
)

// Limits of a request frame (1.1, 1.2), in bytes.
const (
	MaxFrameBytes     = 256 << 10
	MaxRequestIDBytes = 128
)

// UncertainReason is what the ledger and the audit row hold once an effect of
// the verb ended in an error (1.8). The caller gets ReasonTerminalUncertain.
func (v Verb) UncertainReason() Reason {
	switch v {
	case SessionCreate:
		return ReasonSpawnFailed
	case SessionClose:
		return ReasonCloseRefused
	}
	return ReasonTerminalUncertain
}
