// Package crd holds the custom resource definitions that are generated from
// api/v1alpha1, so that one schema judges files and API-server objects.
package crd

import _ "embed"

// AgentProfiles is the definition of the kind AgentProfile, as YAML.
//
//go:embed skc.dev_agentprofiles.yaml
var AgentProfiles []byte

// Quarantines is the definition of the kind Quarantine, as YAML.
//
//go:embed skc.dev_quarantines.yaml
var Quarantines []byte

// SessionRequests is the definition of the kind SessionRequest, as YAML.
//
//go:embed skc.dev_sessionrequests.yaml
var SessionRequests []byte

// Sessions is the definition of the kind Session, as YAML.
//
//go:embed skc.dev_sessions.yaml
var Sessions []byte
