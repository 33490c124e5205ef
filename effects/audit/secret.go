package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"skc.dev/skc/api/lifecycle"
)

// ErrUnsafeSecret is matched when a secret file may be read or written by
// others, or is none. Its text holds nothing of the secret.
var ErrUnsafeSecret = errors.New("secret file cannot be used")

// maxSecretBytes is more than any token has.
const maxSecretBytes = 4096

// Key is the audit key that belongs to the bot token in the file at path: a
// regular file of this user, mode 0600 or less, with the token and at most one
// line feed behind it. Links to it are followed. The error matches
// ErrUnsafeSecret, lifecycle.ErrInvalidAuditKey when the file is empty, or
// fs.ErrNotExist. Nothing stands in for a key.
func Key(path string) ([]byte, error) {
	token, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	key, err := lifecycle.DeriveAuditKey(token)
	if err != nil {
		return nil, fmt.Errorf("secret file %s is empty: %w", path, err)
	}
	return key, nil
}

func readSecret(path string) (_ string, err error) {
	// Without O_NONBLOCK the open of a pipe waits for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	unsafe := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s %s", ErrUnsafeSecret, path, fmt.Sprintf(format, args...))
	}
	fi, err := f.Stat() // of what is open: the name may mean another file by now
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.Mode().IsRegular():
		return "", unsafe("is not a regular file")
	case !ok || int(st.Uid) != os.Geteuid():
		return "", unsafe("belongs to another user than uid %d", os.Geteuid())
	case fi.Mode().Perm()&0o177 != 0:
		return "", unsafe("has mode %04o; make it 0600", fi.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	token := strings.TrimSuffix(string(data), "\n")
	switch {
	case len(data) > maxSecretBytes:
		return "", unsafe("has more than %d bytes", maxSecretBytes)
	case strings.ContainsAny(token, "\r\n\x00"): // another key than the one that is meant
		return "", unsafe("holds more than one line")
	}
	return token, nil
}
