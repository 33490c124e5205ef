package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindQuarantine is the kind of a Quarantine.
const KindQuarantine = "Quarantine"

// QuarantineFinalizer keeps a deleted Quarantine until what it names was given
// back or purged, or its definition is written again.
const QuarantineFinalizer = "skc.dev/quarantine"

// RestoredFromAnnotation is on a Session that came back from quarantine: the
// owner that its worktree carries until the Session takes it over.
const RestoredFromAnnotation = "skc.dev/restored-from"

// Quarantine is one thing that was set aside: what it is, where it was, until
// when it is kept, and whether it should go back or go for good. skc writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=quarantines,singular=quarantine,shortName=qt,categories=skc
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Session",type=string,JSONPath=`.spec.session.name`
// +kubebuilder:printcolumn:name="Branch",type=string,JSONPath=`.spec.origin.branch`
// +kubebuilder:printcolumn:name="Bytes",type=integer,JSONPath=`.status.size.bytes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.status.deadline`
// +kubebuilder:printcolumn:name="Origin",type=string,priority=1,JSONPath=`.spec.origin.path`
// +kubebuilder:printcolumn:name="Place",type=string,priority=1,JSONPath=`.status.path`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a name is at most 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit"
type Quarantine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is set aside and what should become of it.
	Spec QuarantineSpec `json:"spec"`
	// What was seen. Written by the controller only.
	// +optional
	Status QuarantineStatus `json:"status,omitzero"`
}

// QuarantineList is a list of Quarantines.
//
// +kubebuilder:object:root=true
type QuarantineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Quarantine `json:"items"`
}

// QuarantineSpec says what is set aside. retention, restore, restoreTo and
// purge are for people to change; the rest stays as skc wrote it.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.restore) && self.restore && has(self.purge) && self.purge)",message="restore and purge exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.restoreTo) || (has(self.restore) && self.restore)",message="restoreTo needs restore"
type QuarantineSpec struct {
	// The thing, where it was.
	Origin QuarantineOrigin `json:"origin"`
	// Session whose workspace it was.
	// +optional
	Session *QuarantinedSession `json:"session,omitempty"`
	// Why it was set aside.
	Reason QuarantineReason `json:"reason"`
	// Who asked for it, in words: the file that went away, or the sweep.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	RequestedBy string `json:"requestedBy,omitempty"`
	// It is left where it is until then, in case that its owner comes back.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// How long it is kept, from when it was set aside. May be changed.
	// +optional
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h')",message="must be between 1s and 87600h"
	Retention *Duration `json:"retention,omitempty"`
	// Give it back: folder, git's registration, branch and Session.
	// +optional
	Restore bool `json:"restore,omitempty"`
	// Where it is given back to, when that is not where it was.
	// +optional
	RestoreTo Path `json:"restoreTo,omitempty"`
	// Remove it for good, now.
	// +optional
	Purge bool `json:"purge,omitempty"`
}

// QuarantineOrigin is one thing and how it is known.
type QuarantineOrigin struct {
	// What it is.
	Type QuarantineType `json:"type"`
	// Absolute path, links resolved.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/[^\x00]*$`
	Path string `json:"path"`
	// What must be there, or nothing is moved.
	Identity FileIdentity `json:"identity"`
	// UID that a worktree carries in its mark before it is set aside.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	MarkedBy string `json:"markedBy,omitempty"`
	// UID that it carries while it is set aside.
	// +kubebuilder:validation:MaxLength=64
	Owner string `json:"owner"`
	// Git folder that all worktrees of the repository share.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Repo string `json:"repo,omitempty"`
	// Branch that was checked out.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Branch string `json:"branch,omitempty"`
	// Commit that was checked out when that was last looked at.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Head string `json:"head,omitempty"`
}

// QuarantineType is what a set-aside thing is.
//
// +kubebuilder:validation:Enum=Worktree;Folder;File
type QuarantineType string

// The values of spec.origin.type.
const (
	QuarantineWorktree QuarantineType = "Worktree"
	QuarantineFolder   QuarantineType = "Folder"
	QuarantineFile     QuarantineType = "File"
)

// QuarantineReason is why a thing was set aside.
//
// +kubebuilder:validation:Enum=SessionDeleted;TargetChanged;Orphaned
type QuarantineReason string

// The values of spec.reason.
const (
	// QuarantineSessionDeleted: its Session was deleted.
	QuarantineSessionDeleted QuarantineReason = "SessionDeleted"
	// QuarantineTargetChanged: its Session got another target.
	QuarantineTargetChanged QuarantineReason = "TargetChanged"
	// QuarantineOrphaned: it carries skc's mark, and nothing owns it.
	QuarantineOrphaned QuarantineReason = "Orphaned"
)

// QuarantinedSession is the Session whose workspace was set aside.
type QuarantinedSession struct {
	// Namespace of the Session.
	Namespace string `json:"namespace"`
	// Name of the Session.
	Name string `json:"name"`
	// UID of the Session.
	UID string `json:"uid"`
	// The Session as its file defined it, as JSON: what restore writes back. Empty
	// when the Session is still there.
	// +optional
	// +kubebuilder:validation:MaxLength=1048576
	Definition string `json:"definition,omitempty"`
	// File that defined it.
	// +optional
	File string `json:"file,omitempty"`
}

// QuarantineStatus is what the controller saw.
type QuarantineStatus struct {
	// Generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SourceAccepted, SetAside, Restored, and Ready, which sums them up.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Where it lies now.
	// +optional
	Path string `json:"path,omitempty"`
	// Commit that it was at when it was set aside.
	// +optional
	Head string `json:"head,omitempty"`
	// When it was set aside.
	// +optional
	SetAsideAt *metav1.Time `json:"setAsideAt,omitempty"`
	// When it is purged, as the clock goes now. A clock that is set forward makes
	// that no earlier: what counts is the time that was seen to go by.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// How much it holds.
	// +optional
	Size *QuarantineSize `json:"size,omitempty"`
	// Moves that were begun.
	// +optional
	Attempts int64 `json:"attempts,omitempty"`
	// What was in it that was nowhere else when it was set aside.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Safety []SafetyCheck `json:"safety,omitempty"`
}

// QuarantineSize is how much a thing holds. A file with several names counts
// once a name.
type QuarantineSize struct {
	// Bytes in all files.
	Bytes int64 `json:"bytes"`
	// Regular files.
	Files int64 `json:"files"`
	// Names in all, the thing itself included.
	Entries int64 `json:"entries"`
	// Folders that could not be looked into.
	// +optional
	Unreadable int64 `json:"unreadable,omitempty"`
}

// RetentionOrDefault is how long the thing is kept.
func (q *QuarantineSpec) RetentionOrDefault() time.Duration {
	return or(q.Retention, DefaultRetention)
}

// GetConditions is for code that serves every kind.
func (q *Quarantine) GetConditions() []metav1.Condition { return q.Status.Conditions }

// SetConditions is for code that serves every kind.
func (q *Quarantine) SetConditions(c []metav1.Condition) { q.Status.Conditions = c }
