package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindSession is the kind of a Session.
const KindSession = "Session"

// DefaultNamespace is where an object lives whose file names no namespace.
const DefaultNamespace = "default"

// RestartedAtAnnotation asks for one restart: any change of its value ends the
// running program and starts it again. skcctl restart sets it to the time.
const RestartedAtAnnotation = "skc.dev/restartedAt"

// SessionFinalizer keeps a deleted Session until its processes and its tmux
// session are gone.
const SessionFinalizer = "skc.dev/session"

// Session is one desired terminal session: a command in a folder, kept in tmux.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sessions,singular=session,shortName=ses,categories=skc
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts.total`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Workspace",type=string,priority=1,JSONPath=`.status.workspace.path`
// +kubebuilder:printcolumn:name="Pane",type=string,priority=1,JSONPath=`.status.tmux.paneID`
// +kubebuilder:printcolumn:name="Pid",type=integer,priority=1,JSONPath=`.status.tmux.panePID`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a name is at most 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit"
type Session struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What should run, where and how.
	Spec SessionSpec `json:"spec"`
	// What was seen. Written by the controller only.
	// +optional
	Status SessionStatus `json:"status,omitzero"`
}

// SessionList is a list of Sessions.
//
// +kubebuilder:object:root=true
type SessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Session `json:"items"`
}

// SessionSpec says what should run, where and how. Only a change of target,
// command, agent, env or terminal restarts a running program; all else is applied
// live.
//
// +kubebuilder:validation:XValidation:rule="has(self.command) != has(self.agent)",message="exactly one of command, agent is needed"
type SessionSpec struct {
	// Folder in which the command runs.
	Target SessionTarget `json:"target"`

	// Program and arguments, run as they are written: no shell reads them. The
	// program is found in the PATH of the session.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=131071
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	// +optional
	// +kubebuilder:validation:XValidation:rule="self[0].size() > 0",message="the program's name may not be empty"
	Command []string `json:"command,omitempty"`

	// Agent that runs instead of a command, as an AgentProfile says. What an
	// AgentProfile says of it later counts from the next start on.
	// +optional
	Agent *AgentSpec `json:"agent,omitempty"`

	// Environment of the program, on top of the base environment of the
	// controller's config. Nothing is inherited from whoever started skc or tmux.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Env []EnvVar `json:"env,omitempty"`

	// A text that the program gets once in the life of the Session, whatever
	// restarts.
	// +optional
	StartupPrompt *StartupPrompt `json:"startupPrompt,omitempty"`

	// Whether the program should run.
	// +optional
	// +kubebuilder:default=Running
	DesiredState DesiredState `json:"desiredState,omitempty"`

	// When a program that ended is started again.
	// +optional
	// +kubebuilder:default=OnFailure
	RestartPolicy RestartPolicy `json:"restartPolicy,omitempty"`

	// How restarts are spaced.
	// +optional
	// +kubebuilder:default={}
	Restart RestartSpec `json:"restart,omitzero"`

	// How skc learns that the program is ready. Without it a running program is
	// ready.
	// +optional
	Readiness *Readiness `json:"readiness,omitempty"`

	// How the program is ended.
	// +optional
	// +kubebuilder:default={}
	Stop StopSpec `json:"stop,omitzero"`

	// Size and memory of the terminal.
	// +optional
	Terminal *TerminalSpec `json:"terminal,omitempty"`

	// What becomes of a workspace that skc made when the Session is deleted or
	// gets another target.
	// +optional
	// +kubebuilder:default={}
	Cleanup CleanupSpec `json:"cleanup,omitzero"`

	// Hands off: nothing is started, stopped or restarted; status goes on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SessionTarget is the folder of a session: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.worktree), has(self.existingPath), has(self.plainDir)].filter(x, x).size() == 1",message="exactly one of worktree, existingPath, plainDir is needed"
type SessionTarget struct {
	// A git worktree, made when it is missing.
	// +optional
	Worktree *WorktreeTarget `json:"worktree,omitempty"`
	// A folder that is there already. Never created, never removed.
	// +optional
	ExistingPath *PathTarget `json:"existingPath,omitempty"`
	// A folder that is created when it is missing.
	// +optional
	PlainDir *PathTarget `json:"plainDir,omitempty"`
}

// WorktreeTarget is a git worktree of a branch.
type WorktreeTarget struct {
	// The repository: a clone, a bare repository, or a worktree of one.
	Repo Path `json:"repo"`
	// Short name of the branch, as fix/login. One that is missing is made. The
	// branch outlives the session.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:Pattern=`^[^\x00-\x20\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self != '@' && !self.matches('[.][.]|[~^:?*[\\\\\\\\]|@[{]|//|^/|/$|[.]$|(^|/)[.]|[.]lock(/|$)')",message="is no name for a branch: git refuses '..', '~', '^', ':', '?', '*', '[', a backslash, '@{', a leading '-', and parts that begin with '.' or end in '.lock'"
	Branch string `json:"branch"`
	// Where a branch that is missing begins: a branch, tag or commit. Left out, it
	// begins at the branch of that name of a remote, else at the repository's HEAD.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:Pattern=`^[^\x00-\x20\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="may not begin with '-'"
	Base string `json:"base,omitempty"`
	// Where the worktree is. Left out: beside the clone, in NAME.worktrees/.
	// +optional
	Path Path `json:"path,omitempty"`
	// Program and arguments, run once in the new worktree before the first start,
	// with the environment of the session; no shell reads them. When it fails
	// nothing is started; skcctl restart runs it again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=131071
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	Setup []string `json:"setup,omitempty"`
}

// CleanupSpec says what becomes of a workspace that skc made. What skc did not
// make is never touched.
type CleanupSpec struct {
	// Quarantine sets it aside, whatever is in it; Retain leaves it where it is,
	// and it is yours from then on.
	// +optional
	// +kubebuilder:default=Quarantine
	Policy CleanupPolicy `json:"policy,omitempty"`
	// How long it is kept in quarantine.
	// +optional
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h')",message="must be between 1s and 87600h"
	Retention *Duration `json:"retention,omitempty"`
}

// CleanupPolicy says what becomes of a workspace that skc made.
//
// +kubebuilder:validation:Enum=Quarantine;Retain
type CleanupPolicy string

// The values of spec.cleanup.policy.
const (
	CleanupQuarantine CleanupPolicy = "Quarantine"
	CleanupRetain     CleanupPolicy = "Retain"
)

// PathTarget names a folder.
type PathTarget struct {
	// Absolute, or below the home folder with ~/. It may not climb with "..".
	Path Path `json:"path"`
}

// Path is a file path: absolute, or below the home folder of the controller's
// user with ~/.
//
// +kubebuilder:validation:MaxLength=4096
// +kubebuilder:validation:Pattern=`^(/|~/|~$)[^\x00]*$`
// +kubebuilder:validation:XValidation:rule="!self.matches('(^|/)[.][.](/|$)')",message="a path may not climb with \"..\""
type Path string

// EnvVar is one variable of the environment: a value, or where it is read from.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="exactly one of value, valueFrom is needed"
type EnvVar struct {
	// Name of the variable. Names that begin with SKC_ and the names TMUX and
	// TMUX_PANE are skc's own.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('SKC_') && self != 'TMUX' && self != 'TMUX_PANE'",message="names that begin with SKC_, and TMUX and TMUX_PANE, are kept for skc itself"
	Name string `json:"name"`
	// Text as it is written. A number or a word like yes needs quotes.
	// +optional
	// +kubebuilder:validation:MaxLength=131071
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	Value *string `json:"value,omitempty"`
	// Where the value is read from, at each start of the program.
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvVarSource says where the value of a variable is read from.
type EnvVarSource struct {
	// A file whose content, less one line end at the close, is the value.
	File Path `json:"file"`
}

// StartupPrompt is a text that the program gets once in the life of the Session:
// exactly one of text, file. A change of it restarts nothing, and what was
// delivered, or may have been, is not delivered again.
//
// +kubebuilder:validation:XValidation:rule="has(self.text) != has(self.file)",message="exactly one of text, file is needed"
type StartupPrompt struct {
	// The text itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	Text string `json:"text,omitempty"`
	// A file that holds the text, read when it is delivered; at most 1 MiB.
	// +optional
	File Path `json:"file,omitempty"`
	// File: the program takes it from the file that SKC_STARTUP_PROMPT_REF names.
	// Paste: it is pasted into the terminal, with one Enter, when the program is
	// ready and in the foreground. Argument: it is the last argument of one start,
	// where every user of the machine can read it. Left out, it is Paste for an
	// agent and File for a command.
	// +optional
	Delivery PromptDelivery `json:"delivery,omitempty"`
}

// PromptDelivery is the way in which a startup prompt comes to the program.
//
// +kubebuilder:validation:Enum=File;Paste;Argument
type PromptDelivery string

// The values of spec.startupPrompt.delivery.
const (
	PromptFile     PromptDelivery = "File"
	PromptPaste    PromptDelivery = "Paste"
	PromptArgument PromptDelivery = "Argument"
)

// DesiredState says whether the program should run.
//
// +kubebuilder:validation:Enum=Running;Stopped
type DesiredState string

// The values of spec.desiredState.
const (
	DesiredRunning DesiredState = "Running"
	DesiredStopped DesiredState = "Stopped"
)

// RestartPolicy says when a program that ended is started again. OnFailure
// counts an exit code other than 0, a signal, and the loss of the tmux server.
//
// +kubebuilder:validation:Enum=Always;OnFailure;Never
type RestartPolicy string

// The values of spec.restartPolicy.
const (
	RestartAlways    RestartPolicy = "Always"
	RestartOnFailure RestartPolicy = "OnFailure"
	RestartNever     RestartPolicy = "Never"
)

// RestartSpec spaces restarts. The first restart is at once; the n-th in a row
// waits initialBackoff*2^(n-1), at most maxBackoff, plus up to a tenth.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initialBackoff) || !has(self.maxBackoff) || duration(self.initialBackoff) <= duration(self.maxBackoff)",message="initialBackoff may not be longer than maxBackoff"
type RestartSpec struct {
	// Shortest wait before a restart that is not the first in a row.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('24h')",message="must be between 10ms and 24h"
	InitialBackoff *Duration `json:"initialBackoff,omitempty"`
	// Longest wait before a restart.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('24h')",message="must be between 10ms and 24h"
	MaxBackoff *Duration `json:"maxBackoff,omitempty"`
	// A program that ran this long begins again with no backoff.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="must be between 1s and 168h"
	ResetAfter *Duration `json:"resetAfter,omitempty"`
	// Restarts in a row after which skc gives up; 0 means never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxRestarts int32 `json:"maxRestarts,omitempty"`
}

// Duration is a span of time as Go writes it: 500ms, 10s, 1h30m. The generator
// sees through the alias, so each field repeats the markers.
type Duration = metav1.Duration

// Readiness is one probe: exactly one of exec, file, tcp, http, screen.
//
// +kubebuilder:validation:XValidation:rule="[has(self.exec), has(self.file), has(self.tcp), has(self.http), has(self.screen)].filter(x, x).size() == 1",message="exactly one of exec, file, tcp, http, screen is needed"
type Readiness struct {
	// A command that ends with 0, run in the session's folder and environment.
	// +optional
	Exec *ExecProbe `json:"exec,omitempty"`
	// A file that exists.
	// +optional
	File *FileProbe `json:"file,omitempty"`
	// A port on 127.0.0.1 that accepts a connection.
	// +optional
	TCP *TCPProbe `json:"tcp,omitempty"`
	// An address on 127.0.0.1 that answers GET with 200 to 399.
	// +optional
	HTTP *HTTPProbe `json:"http,omitempty"`
	// A pattern that the screen has shown since the program started.
	// +optional
	Screen *ScreenProbe `json:"screen,omitempty"`
	// Time between two looks, and the limit for one.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be between 100ms and 1h"
	Period *Duration `json:"period,omitempty"`
	// Time from the start after which a program that never was ready is called
	// late (ReadinessDeadlineExceeded). It is not stopped, and looks go on.
	// +optional
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be between 1s and 24h"
	Deadline *Duration `json:"deadline,omitempty"`
}

// ExecProbe is ready when the command ends with 0.
type ExecProbe struct {
	// Program and arguments, run as they are written: no shell reads them.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=131071
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	Command []string `json:"command"`
}

// FileProbe is ready when the path exists. A path that is not absolute is
// below the session's folder.
type FileProbe struct {
	// Absolute, or below the session's folder.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	Path string `json:"path"`
}

// TCPProbe is ready when 127.0.0.1:port accepts a connection.
type TCPProbe struct {
	// Port on 127.0.0.1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// HTTPProbe is ready when GET http://127.0.0.1:port/path answers 200 to 399.
type HTTPProbe struct {
	// Port on 127.0.0.1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Path and query that are asked for.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	Path string `json:"path,omitempty"`
}

// ScreenProbe is ready when the visible screen has matched the pattern once
// since the program started.
type ScreenProbe struct {
	// Regular expression (RE2), matched against each line of the screen.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="''.matches(self) || !''.matches(self)",message="must be a regular expression (RE2 syntax)"
	Pattern string `json:"pattern"`
}

// StopSpec says how a program is ended: the signal, then, after the grace
// period, SIGKILL to every process of the session.
type StopSpec struct {
	// Signal that asks the program to end.
	// +optional
	// +kubebuilder:default=SIGTERM
	Signal StopSignal `json:"signal,omitempty"`
	// Time from the signal to SIGKILL for every process of the session.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be between 0s and 1h"
	GracePeriod *Duration `json:"gracePeriod,omitempty"`
}

// StopSignal is the signal that asks a program to end.
//
// +kubebuilder:validation:Enum=SIGTERM;SIGINT;SIGHUP;SIGQUIT;SIGUSR1;SIGUSR2;SIGKILL
type StopSignal string

// TerminalSpec sizes the terminal. What is left out is 200 columns, 50 rows
// and 10000 lines of history.
type TerminalSpec struct {
	// Width in characters; 200 when it is left out.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=1000
	Columns int32 `json:"columns,omitempty"`
	// Height in lines; 50 when it is left out.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=1000
	Rows int32 `json:"rows,omitempty"`
	// Lines that tmux keeps above the screen; 10000 when it is left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	HistoryLimit int32 `json:"historyLimit,omitempty"`
}

// SessionStatus is what the controller saw.
type SessionStatus struct {
	// Generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SourceAccepted, WorkspaceReady, SessionRunning, ProbeSucceeded,
	// PromptDelivered, SafeToDelete, and Ready, which sums up the others but
	// SafeToDelete for what desiredState asks.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The folder in which the session runs.
	// +optional
	Workspace *WorkspaceStatus `json:"workspace,omitempty"`
	// The program that runs, or, while it is stopped, the pane that is kept.
	// +optional
	Tmux *TmuxStatus `json:"tmux,omitempty"`
	// How often the program was started again, and when it is next.
	// +optional
	Restarts RestartStatus `json:"restarts,omitzero"`
	// A stop under way: the signal is sent and the grace period runs.
	// +optional
	Stopping *StoppingStatus `json:"stopping,omitempty"`
	// How the last program of this session ended.
	// +optional
	LastTermination *Termination `json:"lastTermination,omitempty"`
	// Start after whose end a complete look found no process left.
	// +optional
	SweptAttempt int64 `json:"sweptAttempt,omitempty"`
	// Conversation of the agent, which the next start resumes.
	// +optional
	Conversation *ConversationStatus `json:"conversation,omitempty"`
	// Digest of what the running program was started with: target, command, agent,
	// env, terminal, and the restart that was last asked for.
	// +optional
	LaunchedDigest string `json:"launchedDigest,omitempty"`
	// Value of the restartedAt annotation as the running program was started with.
	// +optional
	LaunchedRestartedAt string `json:"launchedRestartedAt,omitempty"`
}

// WorkspaceStatus is the folder in which the session runs.
type WorkspaceStatus struct {
	// Absolute path of the folder. Of one that skc makes, links are resolved.
	Path string `json:"path"`
	// True when the folder was missing and skc made it.
	// +optional
	CreatedByController bool `json:"createdByController,omitempty"`
	// What a folder that skc makes is known by. It is written down before the
	// folder has its name.
	// +optional
	Identity FileIdentity `json:"identity,omitempty"`
	// Git folder that all worktrees of the repository share.
	// +optional
	Repo string `json:"repo,omitempty"`
	// Branch that is checked out; empty when HEAD is detached.
	// +optional
	Branch string `json:"branch,omitempty"`
	// Commit of HEAD when it was last looked at.
	// +optional
	Head string `json:"head,omitempty"`
	// The run of target.worktree.setup.
	// +optional
	Setup *SetupStatus `json:"setup,omitempty"`
	// What was found when it was last looked whether it can go without loss.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Safety []SafetyCheck `json:"safety,omitempty"`
	// Digest of what that look depended on; while it is the same nobody looks again.
	// +optional
	SafetyStamp string `json:"safetyStamp,omitempty"`
	// The target that it was made for.
	// +optional
	Target *WorkspaceTarget `json:"target,omitempty"`
	// Name of the Quarantine that it goes into, once that is decided.
	// +optional
	Quarantine string `json:"quarantine,omitempty"`
}

// WorkspaceTarget is a target as the spec had it, with ~ resolved.
type WorkspaceTarget struct {
	// Repository of a worktree.
	// +optional
	Repo string `json:"repo,omitempty"`
	// Branch of a worktree.
	// +optional
	Branch string `json:"branch,omitempty"`
	// Path of the folder; empty when a worktree is at its default place.
	// +optional
	Path string `json:"path,omitempty"`
}

// FileIdentity names one file or folder for good, as a path does not:
// DEVICE:INODE, and if they are known :BIRTH, the nanoseconds since 1970 at which
// the inode was made, and :BOOT, the boot at which the device had that number.
//
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[0-9]+:[0-9]+(:[0-9]+(:[0-9a-f-]+)?)?$`
type FileIdentity string

// SetupStatus is the one run of a worktree's setup.
type SetupStatus struct {
	// Digest of the command that was run.
	Digest string `json:"digest"`
	// When it was begun. Written before it is.
	StartedAt metav1.MicroTime `json:"startedAt"`
	// Value of the restartedAt annotation at which it was run.
	// +optional
	RestartedAt string `json:"restartedAt,omitempty"`
	// When it ended; unset while it runs, and when nobody saw its end.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// Exit code; unset when a signal ended it or it could not be run.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal that ended it, as SIGKILL.
	// +optional
	Signal string `json:"signal,omitempty"`
	// Why it could not be run.
	// +optional
	Message string `json:"message,omitempty"`
	// Last lines of its output, at most 50, each at most 500 bytes.
	// +optional
	// +listType=atomic
	LastLines []string `json:"lastLines,omitempty"`
}

// SafetyCheck is one thing that may be lost, or be in the way, when a workspace
// goes.
type SafetyCheck struct {
	// One of dirty, untracked, ignored, stash, unpushed, upstream, submodules,
	// open-files, working-in, lock; for a plain folder: content, open-files,
	// working-in.
	Name string `json:"name"`
	// True when nothing would be lost.
	OK bool `json:"ok"`
	// What was found.
	Value string `json:"value"`
	// What would turn it green.
	// +optional
	Fix string `json:"fix,omitempty"`
}

// TmuxStatus says where the program is, proved by more than names.
type TmuxStatus struct {
	// Socket of the tmux server.
	Socket string `json:"socket"`
	// Process id of the tmux server.
	ServerPID int64 `json:"serverPID"`
	// When that process started, which tells it from a later one with its id.
	ServerStartTime string `json:"serverStartTime"`
	// What tmux calls the session, as $7.
	SessionID string `json:"sessionID"`
	// What tmux calls the pane, as %9.
	PaneID string `json:"paneID"`
	// Process id of the program.
	PanePID int64 `json:"panePID"`
	// When that process started, which tells it from a later one with its id.
	PaneStartTime string `json:"paneStartTime,omitempty"`
	// Which start of this session it is, from 1. The running program carries it.
	Attempt int64 `json:"attempt"`
	// Generation that the program was started for.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Boot in which the program was started.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Terminal that the pane was made with.
	// +optional
	Terminal *TerminalSpec `json:"terminal,omitempty"`
	// When the program was started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
}

// RestartStatus counts the starts and holds the budget, which is durable.
type RestartStatus struct {
	// Restarts since the object was made.
	// +optional
	Total int64 `json:"total,omitempty"`
	// Restarts in a row, with no healthy time in between.
	// +optional
	Consecutive int64 `json:"consecutive,omitempty"`
	// When the program is started next, while that waits for the backoff.
	// +optional
	NextAttemptAt *metav1.MicroTime `json:"nextAttemptAt,omitempty"`
}

// StoppingStatus is a stop under way.
type StoppingStatus struct {
	// Which start is being ended.
	Attempt int64 `json:"attempt"`
	// Why: Stopped, Deleted, SpecChanged, RestartRequested, LeftBehind.
	Reason string `json:"reason"`
	// When every process that is left gets SIGKILL.
	Deadline metav1.MicroTime `json:"deadline"`
	// True when the signal was sent; until then only the intent is written down.
	// +optional
	Signaled bool `json:"signaled,omitempty"`
	// True when the grace period is over and SIGKILL is sent.
	// +optional
	Forced bool `json:"forced,omitempty"`
}

// Termination is the death certificate of one program.
type Termination struct {
	// Exit code; unset when a signal ended it or nothing could learn it.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal that ended it, as SIGKILL.
	// +optional
	Signal string `json:"signal,omitempty"`
	// One of the reasons of SessionRunning that begin a death.
	Reason string `json:"reason"`
	// What is known about it, in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// When it was started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// When it ended, or was found to have ended.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// True when the kernel killed it for want of memory.
	// +optional
	OOMKilled bool `json:"oomKilled,omitempty"`
	// Who asked for the end, when it was asked for: Stopped, Deleted,
	// SpecChanged, RestartRequested, LeftBehind.
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// True when processes outlived the grace period and were killed.
	// +optional
	Forced bool `json:"forced,omitempty"`
	// Generation that the program was started for.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Which start of this session it was, from 1.
	Attempt int64 `json:"attempt"`
	// Process id of the tmux server in which it ran.
	// +optional
	TmuxServerPID int64 `json:"tmuxServerPID,omitempty"`
	// Boot in which it ran.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Last lines of the screen, at most 50, each at most 500 bytes.
	// +optional
	// +listType=atomic
	LastLines []string `json:"lastLines,omitempty"`
}

// DurableStatus is what of the status must survive a power cut: the counts of the
// restart budget, which conversation it has, which folder skc made, whether its
// setup was begun, and where it goes. All else can be learned by looking, or
// follows from these.
func (s *Session) DurableStatus() any {
	d := struct {
		Total, Consecutive   int64
		Identity, Quarantine string
		Setup                metav1.MicroTime
		Conversation         *ConversationStatus
	}{Total: s.Status.Restarts.Total, Consecutive: s.Status.Restarts.Consecutive, Conversation: s.Status.Conversation}
	if w := s.Status.Workspace; w != nil {
		d.Quarantine = w.Quarantine
		if w.Repo == "" { // a worktree carries a mark
			d.Identity = string(w.Identity)
		}
		if w.Setup != nil {
			d.Setup = w.Setup.StartedAt
		}
	}
	return d
}

// GetConditions is for code that serves every kind.
func (s *Session) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions is for code that serves every kind.
func (s *Session) SetConditions(c []metav1.Condition) { s.Status.Conditions = c }
