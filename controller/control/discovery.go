package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// FileName is the discovery file in its folder. It says where a control is and
// whose; the token is not in it.
const FileName = "control.json"

// tempPattern matches the temporaries of every process that wrote the file.
var tempPattern = regexp.MustCompile(`^\.control\.[0-9]+\.tmp$`)

var (
	pointPublish  = fault.New("control.publish")
	pointWithdraw = fault.New("control.withdraw")
)

// Record is the discovery file, members in the order of the protocol; times are
// milliseconds since 1970.
type Record struct {
	Version   int    `json:"version"`
	PID       int    `json:"pid"`
	Host      string `json:"host"`
	Port      int    `json:"port"`
	URL       string `json:"url"`
	OwnerID   string `json:"ownerId"`
	StartedAt int64  `json:"startedAt"`
	UpdatedAt int64  `json:"updatedAt"`
	Stale     bool   `json:"stale"`
	StoppedAt *int64 `json:"stoppedAt,omitempty"`
}

func newRecord(addr net.Addr, owner string, now time.Time) Record {
	r := Record{Version: 1, PID: os.Getpid(), URL: "ws://" + addr.String(), OwnerID: owner, StartedAt: now.UnixMilli(), UpdatedAt: now.UnixMilli()}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		r.Host, r.Port = tcp.IP.String(), tcp.Port
	}
	return r
}

func (s *Server) path() string { return filepath.Join(s.opts.Dir, FileName) }

// publish writes the discovery file. One of an earlier controller is replaced,
// and what its killed writes left is taken away.
func (s *Server) publish() error {
	if err := files.MkdirPrivate(s.opts.Dir); err != nil {
		return fmt.Errorf("publish lifecycle control: %w", err)
	}
	if err := sweep(s.opts.Dir, s.opts.Files); err != nil {
		return fmt.Errorf("publish lifecycle control: %w", err)
	}
	if err := s.write(s.record); err != nil {
		return fmt.Errorf("publish lifecycle control: %w", err)
	}
	return nil
}

func (s *Server) write(r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	temp := fmt.Sprintf(".control.%d.tmp", r.PID)
	return s.opts.Files.WriteAs(pointPublish, s.path(), temp, append(text, '\n'), files.Durable)
}

// withdraw takes the discovery file away or, if that cannot be, says in it that
// it is stale. Who lost the home leaves the file: it is the next owner's.
func (s *Server) withdraw() error {
	err := s.opts.Files.Remove(pointWithdraw, s.path(), files.Durable)
	if err == nil || errors.Is(err, effects.ErrNotOwner) {
		return nil
	}
	now := s.opts.Clock.Now().UnixMilli()
	stale := s.record
	stale.UpdatedAt, stale.Stale, stale.StoppedAt = now, true, &now
	if writeErr := s.write(stale); writeErr != nil {
		return fmt.Errorf("withdraw lifecycle control: %w", errors.Join(err, writeErr))
	}
	return nil
}

// Withdraw takes away the discovery file that a killed controller left in dir,
// for one that has no control. The port that it names may be anybody's by now.
func Withdraw(dir string, layer *files.Layer) error {
	if err := sweep(dir, layer); err != nil {
		return fmt.Errorf("withdraw lifecycle control: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, FileName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return layer.Remove(pointWithdraw, filepath.Join(dir, FileName), files.Durable)
}

func sweep(dir string, layer *files.Layer) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if tempPattern.MatchString(e.Name()) {
			if err := layer.Remove(pointWithdraw, filepath.Join(dir, e.Name()), files.Derived); err != nil {
				return err
			}
		}
	}
	return nil
}
