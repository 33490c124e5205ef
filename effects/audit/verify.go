package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects/files"
)

// Report is what Verify found.
type Report struct {
	// Rows are those that match, in the order of the file.
	Rows []lifecycle.AuditRow
	// Total is how many rows the file has; those that are malformed do not count.
	Total int
	// Malformed is how many lines are no row as Append writes them, to the byte.
	Malformed int
}

// maxLine is longer than any row.
const maxLine = 64 << 10

// Verify finds the rows of a chat in the file at path and, when request is not
// nil, of those the ones about a request with these canonical bytes, whatever
// ids it carried. The file holds neither; the references are made again with
// the key. A file that is not there has no rows. The error matches
// lifecycle.ErrInvalidAuditKey.
func Verify(path string, key []byte, chatID string, request []byte) (_ Report, err error) {
	var want lifecycle.AuditRow
	if want.ChatRef, err = lifecycle.AuditRef(key, lifecycle.DomainChat, chatID); err != nil {
		return Report{}, err
	}
	if request != nil {
		if want.RequestRef, err = lifecycle.AuditRef(key, lifecycle.DomainRequest, string(request)); err != nil {
			return Report{}, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if fi, err := f.Stat(); err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	} else if !fi.Mode().IsRegular() {
		return Report{}, fmt.Errorf("audit: %s: %w", path, files.ErrNotRegular)
	}
	var report Report
	for r := bufio.NewReaderSize(f, maxLine); ; {
		line, err := r.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return report, fmt.Errorf("read %s: %w", path, err)
		}
		if last && len(line) == 0 {
			return report, nil
		}
		if row, ok := parse(line); tooLong || !ok {
			report.Malformed++
		} else {
			report.Total++
			if row.ChatRef == want.ChatRef && (request == nil || row.RequestRef == want.RequestRef) {
				report.Rows = append(report.Rows, row)
			}
		}
		if last {
			return report, nil
		}
	}
}

// parse reads one line; it is a row when the row, written again, is the same
// line: no member more, no other order. The line feed of the last one may be
// lost, and comes with the next row.
func parse(line []byte) (row lifecycle.AuditRow, ok bool) {
	if json.Unmarshal(line, &row) != nil {
		return row, false
	}
	again, err := row.Line()
	return row, err == nil && bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), bytes.TrimSuffix(line, []byte("\n")))
}
