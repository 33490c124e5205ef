package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
)

// receipt is what must outlive this process: that a prompt may have been
// delivered. It holds nothing of the text.
type receipt struct {
	Version    int                 `json:"version"`
	UID        string              `json:"uid"`
	State      effects.PromptState `json:"state"`
	Delivery   string              `json:"delivery"`
	Attempt    int64               `json:"attempt,omitempty"`
	BootID     string              `json:"bootID"`
	Message    string              `json:"message,omitempty"`
	IntendedAt time.Time           `json:"intendedAt"`
	SettledAt  time.Time           `json:"settledAt,omitzero"`
}

func (r receipt) status() effects.PromptStatus {
	return effects.PromptStatus{State: r.State, Delivery: r.Delivery, Attempt: r.Attempt, Message: r.Message}
}

const (
	receiptVersion = 1
	maxReceipt     = 64 << 10
)

var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

const receiptSuffix = ".receipt"

func (p *Prompter) receiptPath(uid string) string { return filepath.Join(p.o.Dir, uid+receiptSuffix) }

func (p *Prompter) refPath(uid string) string { return filepath.Join(p.o.Dir, refName(uid)) }

// refName is a name of our choice, which tells nothing and cannot be anything
// but a name.
func refName(uid string) string {
	sum := sha256.Sum256([]byte("startup prompt of " + uid))
	return hex.EncodeToString(sum[:refLength/2])
}

// refPattern is such a name, and one that a program gave what it took.
const refLength = 32

var refPattern = regexp.MustCompile(`^[0-9a-f]{32}($|[^0-9a-f])`)

func (p *Prompter) stagedPath(uid string) string { return p.refPath(uid) + ".staged" }

// read returns the receipt of uid; its zero value when there is none. One that
// says nothing to this version is Unknown, for it was a receipt.
func (p *Prompter) read(uid string) (receipt, error) {
	if !uidPattern.MatchString(uid) {
		return receipt{}, fmt.Errorf("read the prompt receipt of %q: not a UID", uid)
	}
	data, err := files.Read(p.receiptPath(uid), maxReceipt)
	if errors.Is(err, fs.ErrNotExist) {
		return receipt{}, nil
	}
	if err != nil && !errors.Is(err, files.ErrTooLarge) && !errors.Is(err, files.ErrNotRegular) {
		return receipt{}, fmt.Errorf("read the prompt receipt of %s: %w", uid, err)
	}
	var r receipt
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	switch r.State {
	case effects.PromptIntended, effects.PromptDelivered, effects.PromptUnknown:
	default:
		err = errors.New("no such state")
	}
	if err != nil || r.Version != receiptVersion || r.UID != uid {
		return receipt{
			UID: uid, State: effects.PromptUnknown,
			Message: fmt.Sprintf("the receipt %s cannot be understood; remove it to have the prompt delivered, perhaps again", p.receiptPath(uid)),
		}, nil
	}
	return r, nil
}

// intend puts on the disk that a prompt is about to be delivered.
func (p *Prompter) intend(uid, delivery string, attempt int64) (receipt, error) {
	if err := files.MkdirPrivate(p.o.Dir); err != nil {
		return receipt{}, err
	}
	r := receipt{
		Version: receiptVersion, UID: uid, State: effects.PromptIntended, Delivery: delivery, Attempt: attempt,
		BootID: p.o.BootID, IntendedAt: p.o.Clock.Now().UTC(),
	}
	data, err := json.Marshal(r)
	if err != nil {
		return receipt{}, err
	}
	return r, p.o.Files.Write(pointIntend, p.receiptPath(uid), append(data, '\n'), files.Durable)
}

// settle puts on the disk how it came out.
func (p *Prompter) settle(r receipt, state effects.PromptState, message string) (effects.PromptStatus, error) {
	if state != effects.PromptDelivered && state != effects.PromptUnknown {
		return r.status(), fmt.Errorf("settle the startup prompt of %s as %q: no end of it", r.UID, state)
	}
	now := r
	now.State, now.Message, now.SettledAt = state, message, p.o.Clock.Now().UTC()
	data, err := json.Marshal(now)
	if err == nil {
		err = p.o.Files.Write(pointSettle, p.receiptPath(r.UID), append(data, '\n'), files.Durable)
	}
	if err != nil {
		return r.status(), fmt.Errorf("settle the startup prompt of %s: %w", r.UID, err)
	}
	p.done(r.UID) // not before: a paste that is seen to be taken can be settled at the next try
	return now.status(), nil
}

// withdraw takes a receipt back, since it is proved that nothing was delivered.
func (p *Prompter) withdraw(uid string) error {
	if err := p.o.Files.Remove(pointClear, p.receiptPath(uid), files.Durable); err != nil {
		return fmt.Errorf("withdraw the startup prompt of %s: %w", uid, err)
	}
	return nil
}

func (p *Prompter) done(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pastes, uid)
}
