package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindSessionRequest is the kind of a SessionRequest.
const KindSessionRequest = "SessionRequest"

// SessionRequestFinalizer keeps the entry of a request whose file is gone, so
// that its key is not forgotten within the retention.
const SessionRequestFinalizer = "skc.dev/request"

// What a Session that a request made carries, so that an effect is recognised
// by looking, also after a crash.
const (
	// RequestAnnotation is the UID of the SessionRequest.
	RequestAnnotation = "skc.dev/request-uid"
	// SessionIDAnnotation is the id by which chats and scripts know the session.
	SessionIDAnnotation = "skc.dev/session-id"
	// LifecycleRequestAnnotation is the lifecycle request id of a create.
	LifecycleRequestAnnotation = "skc.dev/lifecycle-request-id"
)

// SessionRequest asks once for something to be done to a session. Its spec never
// changes; its status is the entry of the ledger.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sessionrequests,singular=sessionrequest,shortName=sr,categories=skc
// +kubebuilder:printcolumn:name="Verb",type=string,JSONPath=`.spec.verb`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Session",type=string,JSONPath=`.status.session.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Source",type=string,priority=1,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name="Key",type=string,priority=1,JSONPath=`.spec.key`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a name is at most 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit"
type SessionRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for. It never changes.
	Spec SessionRequestSpec `json:"spec"`
	// What became of it. Written by the controller only.
	// +optional
	Status SessionRequestStatus `json:"status,omitzero"`
}

// SessionRequestList is a list of SessionRequests.
//
// +kubebuilder:object:root=true
type SessionRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SessionRequest `json:"items"`
}

// SessionRequestSpec is one request. Source and key together name it for good:
// the same key with another content is refused.
//
// +kubebuilder:validation:XValidation:rule="self.verb != 'Create' || (has(self.target.create) && has(self.ids))",message="Create needs target.create and ids"
// +kubebuilder:validation:XValidation:rule="self.verb == 'Create' || (has(self.target.session) && !has(self.target.create))",message="this verb needs target.session and no target.create"
// +kubebuilder:validation:XValidation:rule="self.verb == 'Create' || !has(self.modelPreset)",message="modelPreset goes with Create"
// +kubebuilder:validation:XValidation:rule="self.verb == 'Close' || !has(self.force)",message="force goes with Close"
type SessionRequestSpec struct {
	// Who brings it: chat, broker, control, cli, or a name of your own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Source string `json:"source"`
	// What names the request within its source. A chat's is CHATID:UPDATEID.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	Key string `json:"key"`
	// What should be done.
	Verb RequestVerb `json:"verb"`
	// Chat that asks. Left out: who can write the file.
	// +optional
	Requester *Requester `json:"requester,omitempty"`
	// What it should be done to.
	Target RequestTarget `json:"target"`
	// Model preset of the agent of a session that is created.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ModelPreset *string `json:"modelPreset,omitempty"`
	// Close ends the program and must be forced: there is no other close yet.
	// +optional
	Force *bool `json:"force,omitempty"`
	// Ids of a session that is created.
	// +optional
	IDs *RequestIDs `json:"ids,omitempty"`
	// What was not begun by then is not begun any more.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Prompt that the session should begin with. Refused: the transport is
	// switched off.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	StartupPromptRef *string `json:"startupPromptRef,omitempty"`
}

// RequestVerb is what a request asks for.
//
// +kubebuilder:validation:Enum=Create;Close;Resume;Fork;Delete
type RequestVerb string

// The values of spec.verb.
const (
	// VerbCreate makes a Session and waits until its program was seen to run.
	VerbCreate RequestVerb = "Create"
	// VerbClose stops a Session and waits until its processes are seen gone.
	VerbClose RequestVerb = "Close"
	// VerbResume finds the live session, or starts a stopped one with its conversation.
	VerbResume RequestVerb = "Resume"
	// VerbFork makes a Session that goes on from the conversation of another.
	VerbFork RequestVerb = "Fork"
	// VerbDelete takes a Session away; its workspace goes to quarantine.
	VerbDelete RequestVerb = "Delete"
)

// Requester is the chat that asks.
type Requester struct {
	// Id of the chat, as text.
	// +kubebuilder:validation:MaxLength=256
	ChatID string `json:"chatId"`
	// Number of the chat's update.
	// +kubebuilder:validation:Minimum=-9007199254740991
	// +kubebuilder:validation:Maximum=9007199254740991
	UpdateID int64 `json:"updateId"`
	// Request id that the answer carries.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	RequestID string `json:"requestId,omitempty"`
}

// RequestIDs are the ids of a session that is created.
type RequestIDs struct {
	// Id of the request that the session carries.
	// +kubebuilder:validation:MaxLength=1024
	LifecycleRequestID string `json:"lifecycleRequestId"`
	// Id that the session should have.
	// +kubebuilder:validation:MaxLength=1024
	IntendedSessionID string `json:"intendedSessionId"`
}

// RequestTarget is what a request is about: a folder in which a session is
// created, or a session.
//
// +kubebuilder:validation:XValidation:rule="has(self.create) != has(self.session)",message="exactly one of create, session is needed"
type RequestTarget struct {
	// Where a session is created.
	// +optional
	Create *CreateTarget `json:"create,omitempty"`
	// Which session.
	// +optional
	Session *SessionSelector `json:"session,omitempty"`
}

// CreateTarget is where a session is created. Texts are kept as they came: the
// request's hash is over them.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'worktree') == (has(self.repo) && has(self.branch)) && (self.kind == 'worktree') != has(self.path)",message="worktree needs repo and branch; existing_path and plain_dir need path"
type CreateTarget struct {
	// existing_path, worktree or plain_dir.
	// +kubebuilder:validation:Enum=existing_path;worktree;plain_dir
	Kind string `json:"kind"`
	// Folder, of existing_path and plain_dir.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Path *string `json:"path,omitempty"`
	// Repository, of worktree.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Repo *string `json:"repo,omitempty"`
	// Branch, of worktree.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Branch *string `json:"branch,omitempty"`
}

// SessionSelector names a session.
type SessionSelector struct {
	// Id of the session; of Resume and Fork, an id or how one begins.
	// +kubebuilder:validation:MaxLength=1024
	ID string `json:"id"`
	// Name of its tmux session, to be sure that it is the one.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	TmuxSession *string `json:"tmuxSession,omitempty"`
	// Its state file, to be sure that it is the one.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	SessionStateFile *string `json:"sessionStateFile,omitempty"`
	// Folder of the session, of Resume and Fork.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Path *string `json:"path,omitempty"`
}

// RequestState is how far a request has come: a state of the ledger.
//
// +kubebuilder:validation:Enum=in_progress;success;failure;terminal_uncertain
type RequestState string

// The values of status.state. Without one the request was not accepted.
const (
	// RequestInProgress: the intent is on the disk; the effect may have begun.
	RequestInProgress RequestState = "in_progress"
	// RequestSuccess: the effect was seen.
	RequestSuccess RequestState = "success"
	// RequestFailure: it was seen that there is no effect.
	RequestFailure RequestState = "failure"
	// RequestUncertain: what became of it cannot be proven. It is never tried again.
	RequestUncertain RequestState = "terminal_uncertain"
)

// RequestStep is what a request in progress may have done.
//
// +kubebuilder:validation:Enum=Begun;Restarting;Withdrawing
type RequestStep string

// The values of status.step. Without one nothing was done yet.
const (
	// StepBegun: the effect may have begun.
	StepBegun RequestStep = "Begun"
	// StepRestarting: a program that ended by itself is stopped for good first.
	StepRestarting RequestStep = "Restarting"
	// StepWithdrawing: the effect did not come about, and is taken back.
	StepWithdrawing RequestStep = "Withdrawing"
)

// SessionRequestStatus is the entry of the ledger.
type SessionRequestStatus struct {
	// Generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SourceAccepted, Accepted, Complete, and Ready, which sums them up.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// How far it has come.
	// +optional
	State RequestState `json:"state,omitempty"`
	// The request as it was accepted. It stays in force whatever the spec says later.
	// +optional
	Request *SessionRequestSpec `json:"request,omitempty"`
	// SHA-256 of the request bytes, in hex.
	// +optional
	RequestHash string `json:"requestHash,omitempty"`
	// Name of the object that has the entry, when this one repeats it.
	// +optional
	DuplicateOf string `json:"duplicateOf,omitempty"`
	// When it arrived: the ts of all its audit rows.
	// +optional
	ArrivedAt *metav1.MicroTime `json:"arrivedAt,omitempty"`
	// When it was accepted.
	// +optional
	CreatedAt *metav1.MicroTime `json:"createdAt,omitempty"`
	// When the entry last changed.
	// +optional
	UpdatedAt *metav1.MicroTime `json:"updatedAt,omitempty"`
	// When it was counted for the chat's limit of creates.
	// +optional
	CountedAt *metav1.MicroTime `json:"countedAt,omitempty"`
	// What may have been done since this was written. A crash goes on from there.
	// +optional
	Step RequestStep `json:"step,omitempty"`
	// Session that the effect is about.
	// +optional
	Session *SessionReference `json:"session,omitempty"`
	// Id of that session.
	// +optional
	SessionID string `json:"sessionId,omitempty"`
	// Name of its tmux session.
	// +optional
	TmuxSession string `json:"tmuxSession,omitempty"`
	// Its state file.
	// +optional
	SessionStateFile string `json:"sessionStateFile,omitempty"`
	// Address of its endpoint. Empty in this release.
	// +optional
	EndpointURL *string `json:"endpointUrl,omitempty"`
	// Of Close: whether all processes were seen gone.
	// +optional
	ProcessGone *bool `json:"processGone,omitempty"`
	// Of Resume: reattached or cold_restarted.
	// +optional
	ResumeMode string `json:"resumeMode,omitempty"`
	// Why it was refused, failed or is uncertain: one of the closed set.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Sessions that the request could mean, when that is several.
	// +optional
	// +listType=atomic
	Candidates []RequestCandidate `json:"candidates,omitempty"`
}

// SessionReference names one Session for good.
type SessionReference struct {
	// Namespace of the Session.
	Namespace string `json:"namespace"`
	// Name of the Session.
	Name string `json:"name"`
	// UID of the Session, once it is seen.
	// +optional
	UID string `json:"uid,omitempty"`
	// Generation of the Session before the effect.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Last start of the Session before the effect.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`
	// Whether the Session should have run before the effect.
	// +optional
	DesiredState DesiredState `json:"desiredState,omitempty"`
	// Quarantine from which the Session comes back.
	// +optional
	Quarantine string `json:"quarantine,omitempty"`
}

// RequestCandidate is one session that a request could mean.
type RequestCandidate struct {
	// Id of the session.
	SessionID string `json:"sessionId"`
	// Folder in which it runs.
	// +optional
	Path string `json:"path,omitempty"`
}

// GetConditions is for code that serves every kind.
func (r *SessionRequest) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions is for code that serves every kind.
func (r *SessionRequest) SetConditions(c []metav1.Condition) { r.Status.Conditions = c }

// DurableStatus is the entry of the ledger, which is nowhere else.
func (r *SessionRequest) DurableStatus() any {
	entry := r.Status
	entry.Conditions, entry.ObservedGeneration = nil, 0
	return entry
}
