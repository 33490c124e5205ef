package lifecycle

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

var (
	// ErrInvalidTarget is matched when a request has no canonical bytes (1.4): a
	// string in it is not Unicode, or it has no target.
	ErrInvalidTarget = errors.New("invalid_target")
	// ErrInvalidAuditKey is matched when the audit key is not 32 bytes (1.4).
	ErrInvalidAuditKey = errors.New("invalid_audit_redaction_key")
)

// AuditKeyBytes is how long an audit key is, exactly.
const AuditKeyBytes = 32

// Domains of the audit references; the NUL belongs to them (1.4).
const (
	DomainChat    = "skc.lifecycle.audit.v2.chat\x00"
	DomainRequest = "skc.lifecycle.audit.v2.request\x00"
	DomainTarget  = "skc.lifecycle.audit.v2.target\x00"
)

// CanonicalTarget is the bytes a target is known by (1.4). The error matches
// ErrInvalidTarget.
func CanonicalTarget(t Target) ([]byte, error) {
	if t == nil {
		return nil, ErrInvalidTarget
	}
	var w writer
	w.open()
	t.canonical(&w)
	b, err := w.done()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidTarget, err)
	}
	return b, nil
}

// CanonicalRequest is the bytes that make two requests the same one (1.4).
// Request id, chat, update id and the create ids are not in them, nor is the
// prompt of a resume. The error matches ErrInvalidTarget.
func CanonicalRequest(r Request) ([]byte, error) {
	target, err := CanonicalTarget(r.Target)
	if err != nil {
		return nil, err
	}
	var prompt, preset *string
	force := "null"
	switch r.Verb() {
	case SessionCreate:
		prompt, preset = r.StartupPromptRef, r.ModelPreset
	case SessionClose:
		force = "false"
		if r.Force != nil && *r.Force {
			force = "true"
		}
	}
	var w writer
	w.open()
	w.str("type", string(r.Verb()))
	w.raw("target", string(target))
	w.orNull("startupPromptRef", prompt)
	w.orNull("modelPreset", preset)
	w.raw("force", force)
	b, err := w.done()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidTarget, err)
	}
	return b, nil
}

// RequestHash is the lower-case hex SHA-256 of the request bytes (1.4). The
// error matches ErrInvalidTarget.
func RequestHash(r Request) (string, error) {
	b, err := CanonicalRequest(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// AuditRef is how an audit row names a value without holding it (1.4): who has
// the key can recompute it, nobody can read it. The error matches
// ErrInvalidAuditKey.
func AuditRef(key []byte, domain, value string) (string, error) {
	if len(key) != AuditKeyBytes {
		return "", ErrInvalidAuditKey
	}
	return hex.EncodeToString(mac(key, domain+value)), nil
}

// DeriveAuditKey makes the audit key of a bot token (1.4). The error matches
// ErrInvalidAuditKey when there is no token: nothing stands in for it, and
// without a key no request is served.
func DeriveAuditKey(botToken string) ([]byte, error) {
	if botToken == "" {
		return nil, ErrInvalidAuditKey
	}
	return mac([]byte(botToken), "skc.lifecycle.audit.v2.key"), nil
}

func mac(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return h.Sum(nil)
}
