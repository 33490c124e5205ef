// Package audit keeps the audit file of lifecycle requests: one row a line,
// appended and never changed, on the disk before the call that adds it returns.
// It holds no chat, request or path, only references that who has the key can
// make again. What a row says and when there is one is for its callers.
package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// FileName is the audit file in its folder. Other programs read it.
const FileName = "telegram-lifecycle-audit.jsonl"

var pointAppend = fault.New("audit.append")

// Log appends to the audit file of one home. Only the owner of the home may
// have one: nobody else appends. Its methods may be called at the same time.
type Log struct {
	dir   string
	files *files.Layer

	mu    sync.Mutex
	named bool // the name of the file is known to be on the disk
}

// Open prepares the folder dir. A file that is there and open to others is
// closed to them.
func Open(dir string, layer *files.Layer) (*Log, error) {
	if err := files.MkdirPrivate(dir); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	path := filepath.Join(dir, FileName)
	fi, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
	case err != nil:
		return nil, fmt.Errorf("audit: %w", err)
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("audit: %s: %w", path, files.ErrNotRegular)
	case fi.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, fmt.Errorf("audit: close the file to others: %w", err)
		}
	}
	return &Log{dir: dir, files: layer}, nil
}

// Append adds a row. It is on the disk when Append returns nil; after an error
// it may be there or not, and may be added again. A row that a crash cut off
// stays on a line of its own. Every row is synced, not only the accepted ones:
// requests are few, and a row that a power cut takes is one that nobody can
// prove.
func (l *Log) Append(row lifecycle.AuditRow) error {
	line, err := row.Line()
	if err != nil {
		return fmt.Errorf("audit row: %w", err)
	}
	if err := l.files.Append(pointAppend, filepath.Join(l.dir, FileName), line, files.Durable); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.named {
		// An earlier process may have died between the first row and the folder.
		if err := l.files.SyncFolder(l.dir); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		l.named = true
	}
	return nil
}
