package v1alpha1

// Condition types of a Session. True is the good state; every type is present
// from the first pass.
const (
	// SourceAccepted is True while the file that defines the object is read and
	// accepted. While it is False the last good version stays in force.
	SourceAccepted = "SourceAccepted"
	// WorkspaceReady is True when the folder is there and may be used.
	WorkspaceReady = "WorkspaceReady"
	// SessionRunning is True while the program runs in its pane.
	SessionRunning = "SessionRunning"
	// ProbeSucceeded is True when the readiness probe succeeded, or none is set.
	ProbeSucceeded = "ProbeSucceeded"
	// PromptDelivered is True when the program got its startup prompt, or none is
	// asked for.
	PromptDelivered = "PromptDelivered"
	// SafeToDelete is True when nothing would be lost if the workspace went: it is
	// not ours, or all that is in it is elsewhere. Ready does not count it.
	SafeToDelete = "SafeToDelete"
	// Ready sums up the others for what desiredState asks: a stopped session that
	// should be stopped is Ready.
	Ready = "Ready"
)

// Reasons of SourceAccepted.
const (
	// ReasonAccepted: the file is read and the object is what it says.
	ReasonAccepted = "Accepted"
	// ReasonInvalidSpec: the file's content is refused; the message has file,
	// line and field.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonSourceUnreadable: the file is there and cannot be read, or has not
	// stood still yet.
	ReasonSourceUnreadable = "SourceUnreadable"
	// ReasonDuplicateObject: a second file defines the object too; the first
	// keeps it. The message names both.
	ReasonDuplicateObject = "DuplicateObject"
	// ReasonPruneHeld: the file is gone, and the object is kept because too much
	// went at once, or because its whole root is missing or was replaced.
	ReasonPruneHeld = "PruneHeld"
)

// Reasons of WorkspaceReady.
const (
	// ReasonWorkspaceFound: the folder is there.
	ReasonWorkspaceFound = "Found"
	// ReasonWorkspaceCreating: the folder, or the worktree, is being made or
	// brought back into order.
	ReasonWorkspaceCreating = "Creating"
	// ReasonWorkspaceCreated: the folder was missing and skc made it.
	ReasonWorkspaceCreated = "Created"
	// ReasonWorkingDirectoryMissing: the folder is not there, or is no folder.
	ReasonWorkingDirectoryMissing = "WorkingDirectoryMissing"
	// ReasonWorkspaceFailed: the folder could not be looked at or made.
	ReasonWorkspaceFailed = "WorkspaceFailed"
	// ReasonBranchCheckedOutElsewhere: git allows a branch in one worktree only.
	ReasonBranchCheckedOutElsewhere = "BranchCheckedOutElsewhere"
	// ReasonBranchInvalid: git would not take this name for a branch.
	ReasonBranchInvalid = "BranchInvalid"
	// ReasonBranchCollision: a ref and a folder of refs cannot have one name.
	ReasonBranchCollision = "BranchCollision"
	// ReasonBaseNotFound: there is no such commit to begin the branch at.
	ReasonBaseNotFound = "BaseNotFound"
	// ReasonRepositoryMissing: nothing is at spec.target.worktree.repo.
	ReasonRepositoryMissing = "RepositoryMissing"
	// ReasonNotARepository: what is at spec.target.worktree.repo is no repository.
	ReasonNotARepository = "NotARepository"
	// ReasonRepositoryLocked: a lock file of git stays; it may be of one that died.
	ReasonRepositoryLocked = "RepositoryLocked"
	// ReasonPathNotEmpty: something is where the worktree should be. It is left as
	// it is.
	ReasonPathNotEmpty = "PathNotEmpty"
	// ReasonWorktreeMissing: the worktree is locked, or its disk is away, and so
	// it is not made anew.
	ReasonWorktreeMissing = "WorktreeMissing"
	// ReasonWorktreeMoved: the worktree was moved by hand.
	ReasonWorktreeMoved = "WorktreeMoved"
	// ReasonGitFailed: git ended with an error; the message is what it said.
	ReasonGitFailed = "GitFailed"
	// ReasonGitMissing: there is no git program.
	ReasonGitMissing = "GitMissing"
	// ReasonSettingUp: the worktree is there, and its setup runs.
	ReasonSettingUp = "SettingUp"
	// ReasonSetupFailed: the setup of the worktree ended with an error, or could
	// not be run. skcctl restart runs it again.
	ReasonSetupFailed = "SetupFailed"
	// ReasonSetupInterrupted: nobody saw how the setup ended. It is not run again
	// by itself; skcctl restart does that.
	ReasonSetupInterrupted = "SetupInterrupted"
	// ReasonReplacing: the target changed; the workspace that skc made for the one
	// before is set aside first.
	ReasonReplacing = "Replacing"
	// ReasonSettingAside: the Session is deleted, and its workspace is on the way
	// into quarantine. The message says what is in the way.
	ReasonSettingAside = "SettingAside"
	// ReasonPermissionDenied: the folder, or the program, may not be used by the
	// user that skc runs as.
	ReasonPermissionDenied = "PermissionDenied"
	// ReasonNotNeeded: nothing runs there, and nothing should.
	ReasonNotNeeded = "NotNeeded"
)

// Who asked for the end of a program: status.stopping.reason and
// status.lastTermination.requestedBy.
const (
	// RequestedStopped: spec.desiredState is Stopped.
	RequestedStopped = "Stopped"
	// RequestedDeleted: the Session is deleted.
	RequestedDeleted = "Deleted"
	// RequestedSpecChanged: target, command, env or terminal changed.
	RequestedSpecChanged = "SpecChanged"
	// RequestedRestart: the restartedAt annotation changed.
	RequestedRestart = "RestartRequested"
	// RequestedLeftBehind: the program ended, and left processes that carry its
	// session; they are ended before anything else is started.
	RequestedLeftBehind = "LeftBehind"
)

// Reasons of SessionRunning. Those from Error to StartFailed are also the
// reasons of status.lastTermination.
const (
	// ReasonRunning: the program runs.
	ReasonRunning = "Running"
	// ReasonStarting: the program was asked for and is not seen yet.
	ReasonStarting = "Starting"
	// ReasonStopping: the program was asked to end and the grace period runs.
	ReasonStopping = "Stopping"
	// ReasonStopped: the program was ended because that was asked for.
	ReasonStopped = "Stopped"
	// ReasonCompleted: the program ended with exit code 0.
	ReasonCompleted = "Completed"
	// ReasonError: the program ended with another exit code.
	ReasonError = "Error"
	// ReasonSignaled: a signal that skc did not send ended the program.
	ReasonSignaled = "Signaled"
	// ReasonOOMKilled: the kernel killed the program for want of memory.
	ReasonOOMKilled = "OOMKilled"
	// ReasonSessionKilled: the tmux session, or its pane, was closed by hand.
	ReasonSessionKilled = "SessionKilled"
	// ReasonServerLost: the tmux server went away and the program with it.
	ReasonServerLost = "ServerLost"
	// ReasonRebooted: the machine was started again since.
	ReasonRebooted = "Rebooted"
	// ReasonExitUnknown: the program ended and tmux could not say how.
	ReasonExitUnknown = "ExitUnknown"
	// ReasonCommandNotFound: there is no such program.
	ReasonCommandNotFound = "CommandNotFound"
	// ReasonExecFailed: the kernel refused to run the program; the message says why.
	ReasonExecFailed = "ExecFailed"
	// ReasonStartFailed: the program could not be started; the message says why.
	ReasonStartFailed = "StartFailed"
	// ReasonEnvironmentUnreadable: a file that an env value is read from cannot
	// be read.
	ReasonEnvironmentUnreadable = "EnvironmentUnreadable"
	// ReasonCrashLoopBackOff: the program ended too soon too often; the next
	// start waits until status.restarts.nextAttemptAt.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	// ReasonRestartLimitExceeded: restart.maxRestarts is used up. A new
	// generation or skcctl restart begins again.
	ReasonRestartLimitExceeded = "RestartLimitExceeded"
	// ReasonNameTaken: another tmux session, not this object's, has the name.
	ReasonNameTaken = "NameTaken"
	// ReasonTmuxMissing: there is no tmux program.
	ReasonTmuxMissing = "TmuxMissing"
	// ReasonTmuxUnreachable: the tmux server does not answer. What runs there is
	// left as it is.
	ReasonTmuxUnreachable = "TmuxUnreachable"
	// ReasonOutOfTerminals: the machine, or the tmux server, has too few
	// pseudo-terminals or file descriptors left to start one more.
	ReasonOutOfTerminals = "OutOfTerminals"
	// ReasonProfileNotFound: there is no AgentProfile of the name that spec.agent
	// says, of the user's or built in.
	ReasonProfileNotFound = "ProfileNotFound"
	// ReasonPresetUnknown: the profile has no model preset of that name.
	ReasonPresetUnknown = "PresetUnknown"
	// ReasonConversationUnsupported: spec.agent names a conversation, and the
	// profile cannot resume one.
	ReasonConversationUnsupported = "ConversationUnsupported"
	// ReasonConversationInUse: another Session has the conversation, running or
	// not. The message names it; when it is deleted this one goes on.
	ReasonConversationInUse = "ConversationInUse"
	// ReasonSuspended: spec.suspend is set and nothing is touched.
	ReasonSuspended = "Suspended"
)

// Reasons of ProbeSucceeded.
const (
	// ReasonNoProbe: no readiness is asked for.
	ReasonNoProbe = "NoProbe"
	// ReasonProbeSucceeded: the last look succeeded.
	ReasonProbeSucceeded = "Succeeded"
	// ReasonProbePending: no look succeeded yet, and the deadline is not over.
	ReasonProbePending = "ReadinessPending"
	// ReasonProbeFailed: it was ready, and the last look failed.
	ReasonProbeFailed = "ReadinessLost"
	// ReasonReadinessDeadlineExceeded: no look succeeded within the deadline.
	ReasonReadinessDeadlineExceeded = "ReadinessDeadlineExceeded"
	// ReasonNotRunning: there is nothing to look at.
	ReasonNotRunning = "NotRunning"
)

// Reasons of PromptDelivered. It is True too with NotAsked: there is no
// startupPrompt.
const (
	// ReasonPromptDelivered: the program got it. It is not delivered again.
	ReasonPromptDelivered = "Delivered"
	// ReasonPromptPending: it is on the way; the message says what it waits for.
	ReasonPromptPending = "PromptPending"
	// ReasonPromptHeld: the program is ready and cannot take it now, as when another
	// one is in the foreground. The message says why. Nothing was typed.
	ReasonPromptHeld = "PromptHeld"
	// ReasonPromptUnknown: the program may have got it, and nobody can tell. It is
	// not delivered again; look at the terminal, and take startupPrompt out of the
	// spec when that is settled.
	ReasonPromptUnknown = "PromptUnknown"
	// ReasonPromptRefused: this text cannot be delivered in this way. Only an edit
	// helps.
	ReasonPromptRefused = "PromptRefused"
	// ReasonPromptUnreadable: startupPrompt.file cannot be read. The program runs
	// all the same.
	ReasonPromptUnreadable = "PromptUnreadable"
)

// Reasons of SafeToDelete.
const (
	// ReasonNothingToLose: all that is in the workspace is elsewhere too.
	ReasonNothingToLose = "NothingToLose"
	// ReasonNotOurs: skc did not make the workspace and will not touch it.
	ReasonNotOurs = "NotOurs"
	// ReasonWorkAtRisk: something is in it that is nowhere else, or it is in use.
	// The message has a line for each check.
	ReasonWorkAtRisk = "WorkAtRisk"
	// ReasonNotChecked: it was not looked at yet, or the look did not end.
	ReasonNotChecked = "NotChecked"
)

// Condition types of a Quarantine, beside SourceAccepted and Ready.
const (
	// SetAside is True while the thing lies in quarantine.
	SetAside = "SetAside"
	// Restored is True when the thing was given back.
	Restored = "Restored"
)

// Reasons of the conditions of a Quarantine. Ready is True with ReasonKept,
// ReasonRestored or ReasonPurged, else it has the reason of what is in the way.
const (
	// ReasonKept: it lies in quarantine, until the deadline.
	ReasonKept = "Kept"
	// ReasonGracePeriod: it has no owner, and is left where it is until
	// spec.notBefore in case that one comes back.
	ReasonGracePeriod = "GracePeriod"
	// ReasonMoving: it is on the way into quarantine, or back.
	ReasonMoving = "Moving"
	// ReasonNotManaged: the object is not one that skc itself wrote, so nothing is
	// set aside for it.
	ReasonNotManaged = "NotManaged"
	// ReasonIdentityMismatch: what is at the path is not what was to be set aside.
	ReasonIdentityMismatch = "IdentityMismatch"
	// ReasonGone: nothing is at the path any more; there was nothing to set aside.
	ReasonGone = "Gone"
	// ReasonLost: what was set aside is at none of its places.
	ReasonLost = "Lost"
	// ReasonUncertain: what is found does not say in one way how far a move came.
	// Nothing is touched until somebody has looked.
	ReasonUncertain = "Uncertain"
	// ReasonPlanUnreadable: what is written about it cannot be read, or a newer skc
	// wrote it. What it tells of is not touched.
	ReasonPlanUnreadable = "PlanUnreadable"
	// ReasonPlaceUnreachable: the folder in which it is kept is away; is its disk
	// mounted?
	ReasonPlaceUnreachable = "PlaceUnreachable"
	// ReasonRefused: it cannot be moved; the message says why. It is where it was.
	ReasonRefused = "Refused"
	// ReasonPlaceTaken: something is where it should be given back to.
	ReasonPlaceTaken = "PlaceTaken"
	// ReasonSessionExists: a Session of that name is there already.
	ReasonSessionExists = "SessionExists"
	// ReasonNotAsked: nobody asked for it to be given back, or for a startup prompt.
	ReasonNotAsked = "NotAsked"
	// ReasonRestored: it was given back.
	ReasonRestored = "Restored"
	// ReasonPurging: it is being removed for good.
	ReasonPurging = "Purging"
	// ReasonPurged: it was removed for good.
	ReasonPurged = "Purged"
	// ReasonDiskFull: there is no room to write down what is to be done. Nothing
	// was moved.
	ReasonDiskFull = "DiskFull"
)

// Condition types of a SessionRequest, beside SourceAccepted and Ready.
const (
	// Accepted is True when the intent is on the disk, which comes before any
	// effect.
	Accepted = "Accepted"
	// Complete is True when what became of the request is known, for good or ill.
	Complete = "Complete"
)

// Reasons of the conditions of a SessionRequest. A refusal or a failure has the
// reason of status.reason in CamelCase, as RateLimited.
const (
	// ReasonRequestAccepted: the intent is on the disk.
	ReasonRequestAccepted = "RequestAccepted"
	// ReasonNotAccepted: the request was refused before anything was done.
	ReasonNotAccepted = "NotAccepted"
	// ReasonInProgress: the effect is under way.
	ReasonInProgress = "InProgress"
	// ReasonSucceeded: the effect was seen.
	ReasonSucceeded = "RequestSucceeded"
	// ReasonLifecycleOff: there is no secret for the audit, so no request is served.
	ReasonLifecycleOff = "LifecycleOff"
	// ReasonExpired: spec.expiresAt had passed before anything was begun.
	ReasonExpired = "Expired"
	// ReasonSpecChanged: the spec was changed after the request was accepted. What
	// was accepted stays in force.
	ReasonSpecChanged = "SpecChanged"
)

// Reasons of Ready that are not those of another condition. When all is well
// Ready has the reason of SessionRunning: Running, or Stopped.
const (
	// ReasonObserving: not looked at yet.
	ReasonObserving = "Observing"
)
