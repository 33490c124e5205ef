package audit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skc.dev/skc/api/lifecycle"
)

func TestKey(t *testing.T) {
	const token = "1234567890:c4n4ry"
	want, err := lifecycle.DeriveAuditKey(token)
	must(t, err)
	put := func(text string, mode fs.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
		}
	}
	for _, c := range []struct {
		name string
		put  func(path string) error
		want error
	}{
		{"token", put(token, 0o600), nil},
		{"a line feed behind it", put(token+"\n", 0o600), nil},
		{"read only", put(token, 0o400), nil},
		{"link to it", func(path string) error {
			return errors.Join(put(token, 0o600)(path+".real"), os.Symlink(path+".real", path))
		}, nil},
		{"two line feeds", put(token+"\n\n", 0o600), ErrUnsafeSecret},
		{"carriage return", put(token+"\r\n", 0o600), ErrUnsafeSecret},
		{"NUL", put(token+"\x00", 0o600), ErrUnsafeSecret},
		{"read by the group", put(token, 0o640), ErrUnsafeSecret},
		{"written by all", put(token, 0o602), ErrUnsafeSecret},
		{"may be run", put(token, 0o700), ErrUnsafeSecret},
		{"too long", put(strings.Repeat("x", maxSecretBytes+1), 0o600), ErrUnsafeSecret},
		{"empty", put("", 0o600), lifecycle.ErrInvalidAuditKey},
		{"line feed only", put("\n", 0o600), lifecycle.ErrInvalidAuditKey},
		{"missing", func(string) error { return nil }, fs.ErrNotExist},
		{"folder", func(path string) error { return os.Mkdir(path, 0o700) }, ErrUnsafeSecret},
		{"pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, ErrUnsafeSecret},
		{"device", func(path string) error { return os.Symlink("/dev/zero", path) }, ErrUnsafeSecret},
		{"of another user", func(path string) error {
			err := errors.Join(put(token, 0o600)(path), os.Chown(path, 12345, -1))
			if errors.Is(err, fs.ErrPermission) {
				t.Skip("only root can give a file away")
			}
			return err
		}, ErrUnsafeSecret},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			must(t, c.put(path))
			got, err := Key(path)
			if !errors.Is(err, c.want) || err == nil && string(got) != string(want) {
				t.Errorf("Key = %x, %v; want %v", got, err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), "c4n4ry") || !strings.Contains(err.Error(), path)) {
				t.Errorf("the error is %q", err)
			}
		})
	}
}
