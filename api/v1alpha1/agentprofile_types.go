package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindAgentProfile is the kind of an AgentProfile.
const KindAgentProfile = "AgentProfile"

// BuiltInAnnotation is on the profiles that come with skc, as the command line
// shows them. No file defines those.
const BuiltInAnnotation = "skc.dev/built-in"

// AgentProfile says how one agent program is started, how its conversation is
// known and resumed, and what its screen shows when it is ready. It belongs to
// no namespace. A profile has the name of a built-in one to replace it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=agentprofiles,singular=agentprofile,scope=Cluster,shortName=ap,categories=skc
// +kubebuilder:printcolumn:name="Program",type=string,JSONPath=`.spec.command[0]`
// +kubebuilder:printcolumn:name="Built-In",type=string,JSONPath=`.metadata.annotations.skc\.dev/built-in`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="SourceAccepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Command",type=string,priority=1,JSONPath=`.spec.command`
// +kubebuilder:printcolumn:name="Resume",type=string,priority=1,JSONPath=`.spec.resume`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a name is at most 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit"
type AgentProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How the program is started, resumed and recognised.
	Spec AgentProfileSpec `json:"spec"`
	// What was seen. Written by the controller only.
	// +optional
	Status AgentProfileStatus `json:"status,omitzero"`
}

// AgentProfileList is a list of AgentProfiles.
//
// +kubebuilder:object:root=true
type AgentProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentProfile `json:"items"`
}

// AgentProfileSpec says how one agent program is started, resumed and
// recognised. It is read at each start of a Session; a change of it restarts
// nothing.
//
// +kubebuilder:validation:XValidation:rule="has(self.conversation) == has(self.resume)",message="conversation and resume go together: one without the other is of no use"
// +kubebuilder:validation:XValidation:rule="!has(self.fork) || has(self.resume)",message="fork needs conversation and resume"
// +kubebuilder:validation:XValidation:rule="self.command.exists(a, a.endsWith('{conversationID}')) == (has(self.conversation) && has(self.conversation.mint) && !has(self.conversation.mint.env))",message="command has {conversationID} when conversation.mint gives no env, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.resume) || self.resume.exists(a, a.endsWith('{conversationID}'))",message="resume must have {conversationID}"
// +kubebuilder:validation:XValidation:rule="!has(self.fork) || self.fork.exists(a, a.endsWith('{conversationID}'))",message="fork must have {conversationID}"
// +kubebuilder:validation:XValidation:rule="!has(self.fork) || !has(self.conversation) || self.fork.exists(a, a.endsWith('{newConversationID}')) == (has(self.conversation.mint) && !has(self.conversation.mint.env))",message="fork has {newConversationID} when conversation.mint gives no env, and only then"
// +kubebuilder:validation:XValidation:rule="!self.command.exists(a, a.endsWith('{modelPreset}') || a.endsWith('{newConversationID}')) && (!has(self.resume) || !self.resume.exists(a, a.endsWith('{modelPreset}') || a.endsWith('{newConversationID}'))) && (!has(self.fork) || !self.fork.exists(a, a.endsWith('{modelPreset}')))",message="{modelPreset} belongs in modelPreset.args, and {newConversationID} in fork"
type AgentProfileSpec struct {
	// Program and arguments that begin a new conversation, run without a shell.
	// {conversationID} stands for an id that skc mints.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self[0].size() > 0",message="the program's name may not be empty"
	Command []ArgTemplate `json:"command"`

	// Arguments that choose a model. They follow those of command, resume or fork
	// when the Session has a modelPreset.
	// +optional
	ModelPreset *ModelPresetArgs `json:"modelPreset,omitempty"`

	// How the id of a conversation is known. Without it there is nothing to resume.
	// +optional
	Conversation *ConversationSpec `json:"conversation,omitempty"`

	// Program and arguments that go on with the conversation {conversationID}.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self[0].size() > 0",message="the program's name may not be empty"
	Resume []ArgTemplate `json:"resume,omitempty"`

	// Program and arguments that begin a copy of the conversation
	// {conversationID}; {newConversationID} is the copy's id where that can be chosen.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self[0].size() > 0",message="the program's name may not be empty"
	Fork []ArgTemplate `json:"fork,omitempty"`

	// What the screen shows.
	// +optional
	Screen *AgentScreen `json:"screen,omitempty"`
}

// ArgTemplate is one argument of a command. A placeholder, {conversationID},
// {newConversationID} or {modelPreset}, is a whole argument, or all of it behind
// --flag=. Other text stays as it is written.
//
// +kubebuilder:validation:MaxLength=4096
// +kubebuilder:validation:Pattern=`^[^\x00]*$`
// +kubebuilder:validation:XValidation:rule="!self.matches('[{](conversationID|newConversationID|modelPreset)[}]') || self.matches('^(--?[A-Za-z0-9][-A-Za-z0-9_.]*=)?[{][A-Za-z]+[}]$')",message="a placeholder is a whole argument, or all of it behind --flag="
// +kubebuilder:validation:XValidation:rule="!self.matches('^(--?[A-Za-z0-9][-A-Za-z0-9_.]*=)?[{][A-Za-z]+[}]$') || self.matches('[{](conversationID|newConversationID|modelPreset)[}]$')",message="unknown placeholder: there are {conversationID}, {newConversationID} and {modelPreset}"
type ArgTemplate string

// ModelPresetArgs are the arguments that choose a model.
//
// +kubebuilder:validation:XValidation:rule="self.args.exists(a, a.endsWith('{modelPreset}')) && !self.args.exists(a, a.endsWith('onversationID}'))",message="args must have {modelPreset} and no other placeholder"
type ModelPresetArgs struct {
	// Arguments with {modelPreset} for what the Session asks for.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Args []ArgTemplate `json:"args"`
	// The presets that there are. Without them the agent itself judges the name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Presets []ModelPreset `json:"presets,omitempty"`
}

// ModelPreset is one choice of a model.
type ModelPreset struct {
	// Name as a Session says it.
	Name ModelPresetName `json:"name"`
	// What {modelPreset} stands for; the name when it is left out.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	Value string `json:"value,omitempty"`
}

// ModelPresetName names a choice of a model.
//
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]{1,128}$`
// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="may not begin with '-': a program would take it for an option"
type ModelPresetName string

// ConversationID is the id that an agent gives a conversation.
//
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]{1,128}$`
// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="may not begin with '-': a program would take it for an option"
type ConversationID string

// ConversationSpec says how the id of a conversation is known: exactly one of
// its fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.mint) != has(self.capture)",message="exactly one of mint, capture is needed"
type ConversationSpec struct {
	// skc makes a UUID and tells the agent.
	// +optional
	Mint *MintedConversation `json:"mint,omitempty"`
	// The agent makes the id, and skc finds it: the first source that knows
	// exactly one counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Capture []CaptureSource `json:"capture,omitempty"`
}

// MintedConversation is an id that skc makes.
type MintedConversation struct {
	// Variable in which a new conversation's id is given, for an agent that takes
	// it so; else command has {conversationID}.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['SKC_SESSION_UID', 'SKC_SESSION_NAMESPACE', 'SKC_SESSION_NAME', 'SKC_STARTUP_PROMPT_REF', 'TMUX', 'TMUX_PANE', 'HOME', 'PATH'])",message="is a variable by which skc, tmux or the program finds its way"
	Env string `json:"env,omitempty"`
	// What the agent writes once there is something to resume. While no such file
	// is there, a later start uses command again, with the same id. The glob has
	// {conversationID}, or {conversationIDPrefix} for its first 8 characters.
	// Without it a conversation counts from the first start on.
	// +optional
	Record *FileSet `json:"record,omitempty"`
}

// FileSet names files of the agent.
type FileSet struct {
	// Folder above them: absolute, or below the session's HOME with ~/.
	Root Path `json:"root"`
	// Variable of the session's environment that, when it is set, is the folder
	// instead of root.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	RootEnv string `json:"rootEnv,omitempty"`
	// Pattern of paths below the folder, with * and ? for parts of one name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",message="must lie below the folder: no / at the front and no \"..\""
	Glob string `json:"glob"`
}

// CaptureSource is one place where an agent tells the id: exactly one of files,
// command and terminal. What may be of another session is not taken: with files
// and command the conversation must be of this folder and begun since the
// start, as far as the pattern tells, and the only one.
//
// +kubebuilder:validation:XValidation:rule="[has(self.files), has(self.command), has(self.terminal)].filter(x, x).size() == 1",message="exactly one of files, command, terminal is needed"
type CaptureSource struct {
	// Files written since the program started; the pattern is matched with the
	// first 64 KiB of each.
	// +optional
	Files *FileSet `json:"files,omitempty"`
	// Program and arguments, run without a shell in the folder and environment of
	// the session; the pattern is matched with what they print.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	Command []string `json:"command,omitempty"`
	// Screen: each line of the screen while the program runs. LastLines: each of
	// its last lines after it ended.
	// +optional
	Terminal TerminalText `json:"terminal,omitempty"`
	// Regular expression (RE2) with a group id. A group dir, if there is one, must
	// be the session's folder, and a group created, in milliseconds since 1970, no
	// earlier than the start.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="''.matches(self) || !''.matches(self)",message="must be a regular expression (RE2 syntax)"
	// +kubebuilder:validation:XValidation:rule="self.contains('(?P<id>')",message="must have a group (?P<id>...)"
	Pattern string `json:"pattern"`
}

// TerminalText is a part of what a program wrote to its terminal.
//
// +kubebuilder:validation:Enum=Screen;LastLines
type TerminalText string

// The values of conversation.capture[].terminal.
const (
	TerminalScreen    TerminalText = "Screen"
	TerminalLastLines TerminalText = "LastLines"
)

// AgentScreen are patterns of lines by which people and programs know what the
// agent does.
type AgentScreen struct {
	// The agent is up: readiness of a Session that has none of its own.
	// +optional
	Ready *ScreenProbe `json:"ready,omitempty"`
	// The agent takes a prompt.
	// +optional
	Prompt *ScreenProbe `json:"prompt,omitempty"`
	// The agent works.
	// +optional
	Busy *ScreenProbe `json:"busy,omitempty"`
	// The agent asks its user something.
	// +optional
	Waiting *ScreenProbe `json:"waiting,omitempty"`
}

// AgentProfileStatus is what the controller saw.
type AgentProfileStatus struct {
	// SourceAccepted: the file that defines the profile is read and accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentSpec chooses an agent instead of a command.
type AgentSpec struct {
	// Name of an AgentProfile, the user's or a built-in one.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Profile string `json:"profile"`
	// Model, by the name that the profile or the agent knows.
	// +optional
	ModelPreset ModelPresetName `json:"modelPreset,omitempty"`
	// More arguments, last, as they are written.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131071
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	Args []string `json:"args,omitempty"`
	// A conversation that is there already: the first start resumes it too. No two
	// Sessions have one conversation.
	// +optional
	ConversationID ConversationID `json:"conversationID,omitempty"`
	// A conversation of the same agent: the first start begins a copy of it.
	// +optional
	ForkFrom ConversationID `json:"forkFrom,omitempty"`
}

// ConversationStatus is the conversation of a Session's agent. No other Session
// resumes it while this one is there.
type ConversationStatus struct {
	// Id, by which it is resumed.
	ID ConversationID `json:"id"`
	// Minted: skc made the id. Captured: the agent did. Given: spec.agent says it.
	Source ConversationSource `json:"source"`
	// Profile whose conversation it is. Another one begins a new conversation.
	Profile string `json:"profile"`
	// True once the agent ran with it. A minted one is written down before that.
	// +optional
	Begun bool `json:"begun,omitempty"`
}

// ConversationSource says where the id of a conversation comes from.
//
// +kubebuilder:validation:Enum=Minted;Captured;Given
type ConversationSource string

// The values of status.conversation.source.
const (
	ConversationMinted   ConversationSource = "Minted"
	ConversationCaptured ConversationSource = "Captured"
	ConversationGiven    ConversationSource = "Given"
)

// GetConditions is for code that serves every kind.
func (p *AgentProfile) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions is for code that serves every kind.
func (p *AgentProfile) SetConditions(c []metav1.Condition) { p.Status.Conditions = c }
