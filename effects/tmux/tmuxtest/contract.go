// Package tmuxtest holds what every reconciler may assume of tmux, as tests
// that run against the real one and against the fake that is here too.
package tmuxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skc.dev/skc/effects"
	"skc.dev/skc/effects/tmux"
)

// Mux is what reconcilers use; tmux.Client and Fake have it.
type Mux interface {
	OnChange(func(uid string))
	Look(ctx context.Context) error
	Get(ctx context.Context, uid string) (effects.TmuxPane, error)
	List(ctx context.Context) ([]effects.TmuxPane, error)
	Server(ctx context.Context) (effects.TmuxServer, error)
	Create(ctx context.Context, cr tmux.Create) (effects.TmuxPane, error)
	Respawn(ctx context.Context, pane effects.TmuxPane, l effects.LaunchID) (effects.TmuxPane, error)
	Tag(ctx context.Context, pane effects.TmuxPane, tags []effects.TmuxTag) error
	Kill(ctx context.Context, pane effects.TmuxPane) error
	Capture(ctx context.Context, pane effects.TmuxPane, lines int) ([]string, error)
	Screen(ctx context.Context, pane effects.TmuxPane) (effects.TmuxScreen, error)
	Paste(ctx context.Context, pane effects.TmuxPane, text []byte) error
	Enter(ctx context.Context, pane effects.TmuxPane) error
	DropPaste(ctx context.Context, uid string) error
}

// World is a Mux with the hands of those who act beside the controller.
type World struct {
	Mux
	Changes <-chan string // every call of OnChange, from before Run on
	// Prepare makes a launch ready: its program runs until it is told to end.
	Prepare func(l effects.LaunchID)
	// PrepareReader is Prepare of a program that asks for bracketed paste and
	// echoes what it reads; Reading tells whether it has begun to, Read is what
	// it has read by now.
	PrepareReader func(l effects.LaunchID)
	Reading       func(pane effects.TmuxPane) bool
	Read          func(pane effects.TmuxPane) string
	// Exit has the program of a pane exit; Die has a signal end it.
	Exit func(pane effects.TmuxPane, code int)
	Die  func(pane effects.TmuxPane, signal string)
	// Close ends a session behind the controller's back; Rename renames one.
	Close      func(pane effects.TmuxPane)
	Rename     func(pane effects.TmuxPane, name string)
	KillServer func()
	// Tagged is the value of a tag of the pane's session, as others read it.
	Tagged func(pane effects.TmuxPane, name string) string
	// Hang stops the server's answers, Resume lets it answer again.
	Hang, Resume func()
}

// UID makes the UID of the nth test session.
func UID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// Launch is the attempt-th start of the nth test session.
func Launch(n int, attempt int64) effects.LaunchID {
	return effects.LaunchID{UID: UID(n), Generation: 1, Attempt: attempt}
}

// Want is a session of ordinary size.
func Want(name string, l effects.LaunchID) tmux.Create {
	return tmux.Create{Name: name, Columns: 80, Rows: 24, HistoryLimit: 2000, Launch: l}
}

// Limit is how long a test waits for what must come.
const Limit = 20 * time.Second

// Await waits until a change of uid is told.
func (w *World) Await(t *testing.T, uid string) {
	t.Helper()
	limit := time.After(Limit)
	for {
		select {
		case got := <-w.Changes:
			if got == uid {
				return
			}
		case <-limit:
			t.Fatalf("no change of %q was told", uid)
		}
	}
}

// Until waits for changes until ok, which is asked after each of them.
func (w *World) Until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(Limit)
	for !ok() {
		select {
		case <-w.Changes:
		case <-limit:
			panes, err := w.List(t.Context())
			t.Fatalf("it never came that %s; there are %+v, %v", what, panes, err)
		}
	}
}

// Start creates a session, which must work.
func (w *World) Start(t *testing.T, name string, l effects.LaunchID) effects.TmuxPane {
	t.Helper()
	w.Prepare(l)
	p, err := w.Create(t.Context(), Want(name, l))
	if err != nil {
		t.Fatalf("Create %s = %v", name, err)
	}
	return p
}

// Contract is what every reconciler may assume.
func Contract(t *testing.T, newWorld func(*testing.T) *World) {
	t.Run("no server is proved absence, and a read starts none", func(t *testing.T) {
		w := newWorld(t)
		if err := w.Look(t.Context()); err != nil {
			t.Errorf("Look = %v", err)
		}
		if _, err := w.Get(t.Context(), UID(1)); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Get = %v, want ErrNotFound", err)
		}
		if l, err := w.List(t.Context()); err != nil || len(l) != 0 {
			t.Errorf("List = %v, %v, want none", l, err)
		}
		if _, err := w.Server(t.Context()); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Server = %v, want ErrNotFound", err)
		}
	})
	t.Run("what was created is found by its UID", func(t *testing.T) {
		w := newWorld(t)
		made := w.Start(t, "web", Launch(1, 1))
		got, err := w.Get(t.Context(), UID(1))
		if err != nil || got != made {
			t.Fatalf("Get = %+v, %v, want %+v", got, err, made)
		}
		server, err := w.Server(t.Context())
		if err != nil || server != made.Server {
			t.Errorf("Server = %+v, %v, want %+v", server, err, made.Server)
		}
		if made.Launch != Launch(1, 1) || made.Name != "web" || made.Dead || made.Process.PID < 2 || made.Process.StartTime == "" ||
			made.SessionID == "" || made.WindowID == "" || made.PaneID == "" {
			t.Errorf("pane = %+v", made)
		}
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != made {
			t.Errorf("Get after Look = %+v, %v, want %+v", got, err, made)
		}
	})
	t.Run("a name is taken once", func(t *testing.T) {
		w := newWorld(t)
		first := w.Start(t, "team/web", Launch(1, 1))
		w.Prepare(Launch(2, 1))
		if _, err := w.Create(t.Context(), Want("team/web", Launch(2, 1))); !errors.Is(err, effects.ErrExists) {
			t.Errorf("Create = %v, want ErrExists", err)
		}
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != first {
			t.Errorf("Get = %+v, %v, want %+v", got, err, first)
		}
		if _, err := w.Get(t.Context(), UID(2)); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Get = %v, want ErrNotFound", err)
		}
	})
	t.Run("a name that is part of another is another", func(t *testing.T) {
		w := newWorld(t)
		one, ten := w.Start(t, "agent-1", Launch(1, 1)), w.Start(t, "agent-10", Launch(10, 1))
		must(t, w.Kill(t.Context(), one))
		if got, err := w.Get(t.Context(), UID(10)); err != nil || got != ten {
			t.Errorf("Get of the other = %+v, %v, want %+v", got, err, ten)
		}
		again := w.Start(t, "agent-1", Launch(1, 2))
		if again.SessionID == one.SessionID || again.Process == one.Process {
			t.Errorf("created again = %+v, as before %+v", again, one)
		}
		must(t, w.Look(t.Context()))
		if got, err := w.Get(t.Context(), UID(10)); err != nil || got != ten {
			t.Errorf("Get of the other = %+v, %v, want %+v", got, err, ten)
		}
	})
	t.Run("bad arguments are refused", func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"", "_anchor", "a.b", "a:b", "a;", "-x", "../x", "a/b/c", "A", "é", "#(touch x)", "a b", "$1", "a\nb"} {
			if _, err := w.Create(t.Context(), Want(name, Launch(1, 1))); !errors.Is(err, tmux.ErrInvalid) {
				t.Errorf("Create %q = %v, want ErrInvalid", name, err)
			}
		}
		for _, l := range []effects.LaunchID{{}, {UID: UID(1)}, {UID: "00000000-0000-4000-8000-00000000000'", Generation: 1, Attempt: 1}} {
			if _, err := w.Create(t.Context(), Want("web", l)); !errors.Is(err, tmux.ErrInvalid) {
				t.Errorf("Create of launch %+v = %v, want ErrInvalid", l, err)
			}
		}
	})
	t.Run("tags are what they are set to, whatever they hold", func(t *testing.T) {
		w := newWorld(t)
		values := []string{"plain", "", "-x", "a b", "it's", `"q"`, `back\slash`, "#{pid}", "#(touch x)", "%1", "$HOME", "~", "a;", "; kill-server ;", "{", "é", "`x`", "%if", "@a", strings.Repeat("x", 4096)}
		var tags []effects.TmuxTag
		for i, v := range values {
			tags = append(tags, effects.TmuxTag{Name: fmt.Sprintf("@skc-t%d", i), Value: v})
		}
		want := Want("team/web", Launch(1, 1))
		want.Tags = tags
		w.Prepare(want.Launch)
		p, err := w.Create(t.Context(), want)
		must(t, err)
		other := w.Start(t, "web", Launch(2, 1))
		for i, v := range values {
			if got := w.Tagged(p, tags[i].Name); got != v {
				t.Errorf("%s is %q, want %q", tags[i].Name, got, v)
			}
			if got := w.Tagged(other, tags[i].Name); got != "" {
				t.Errorf("another session has it: %q", got)
			}
		}
		must(t, w.Tag(t.Context(), p, []effects.TmuxTag{{Name: "@skc-t0", Value: "new"}}))
		must(t, w.Tag(t.Context(), p, nil))
		if got := w.Tagged(p, "@skc-t0"); got != "new" {
			t.Errorf("set again it is %q", got)
		}
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != p {
			t.Errorf("Get = %+v, %v, want %+v", got, err, p)
		}
		must(t, w.Kill(t.Context(), p))
		if err := w.Tag(t.Context(), p, tags); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Tag of what is gone = %v", err)
		}
		for _, bad := range []effects.TmuxTag{{Name: "status", Value: "off"}, {Name: "@a b", Value: "x"}, {Name: "@a", Value: "x\ny"}, {Name: "@a", Value: "\x7f"}, {Name: "@a", Value: "\xff"}} {
			want.Tags = []effects.TmuxTag{bad}
			if _, err := w.Create(t.Context(), want); !errors.Is(err, tmux.ErrInvalid) {
				t.Errorf("Create with %+q = %v, want ErrInvalid", bad, err)
			}
			if err := w.Tag(t.Context(), other, want.Tags); !errors.Is(err, tmux.ErrInvalid) {
				t.Errorf("Tag %+q = %v, want ErrInvalid", bad, err)
			}
		}
	})
	t.Run("a killed session is not found, and killing again succeeds", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(t, "web", Launch(1, 1))
		must(t, w.Kill(t.Context(), p))
		if _, err := w.Get(t.Context(), UID(1)); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Get after Kill = %v, want ErrNotFound", err)
		}
		must(t, w.Kill(t.Context(), p))
		if _, err := w.Respawn(t.Context(), p, Launch(1, 2)); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Respawn after Kill = %v, want ErrNotFound", err)
		}
		if _, err := w.Capture(t.Context(), p, 10); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Capture after Kill = %v, want ErrNotFound", err)
		}
	})
	t.Run("deaths are told, with how", func(t *testing.T) {
		w := newWorld(t)
		zero, seven, killed := w.Start(t, "zero", Launch(1, 1)), w.Start(t, "seven", Launch(2, 1)), w.Start(t, "killed", Launch(3, 1))
		w.Exit(zero, 0)
		w.Exit(seven, 7)
		w.Die(killed, "SIGKILL")
		for _, want := range []effects.TmuxPane{zero, seven, killed} {
			w.Until(t, want.Name+" is dead", func() bool {
				p, err := w.Get(t.Context(), want.Launch.UID)
				return err == nil && p.Dead
			})
			want.Dead, want.ExitKnown = true, true
			switch want.Name {
			case "seven":
				want.ExitCode = 7
			case "killed":
				want.Signal = "SIGKILL"
			}
			if got, err := w.Get(t.Context(), want.Launch.UID); err != nil || got != want {
				t.Errorf("Get = %+v, %v, want %+v", got, err, want)
			}
		}
	})
	t.Run("a pane is respawned in place", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(t, "web", Launch(1, 1))
		w.Exit(p, 3)
		w.Await(t, UID(1))
		w.Prepare(Launch(1, 2))
		now, err := w.Respawn(t.Context(), p, Launch(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		want := p
		want.Launch, want.Process = Launch(1, 2), now.Process
		if now != want || now.Process == p.Process {
			t.Errorf("Respawn = %+v, want %+v with another process", now, want)
		}
		must(t, w.Look(t.Context()))
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != now {
			t.Errorf("Get = %+v, %v, want %+v", got, err, now)
		}
		w.Exit(now, 4) // heard of as the first was
		w.Until(t, "the second program is dead", func() bool {
			p, err := w.Get(t.Context(), UID(1))
			return err == nil && p.Dead && p.ExitCode == 4
		})
	})
	t.Run("a running program is replaced, and its death is no news", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(t, "web", Launch(1, 1))
		w.Prepare(Launch(1, 2))
		now, err := w.Respawn(t.Context(), p, Launch(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		must(t, w.Look(t.Context()))
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != now || got.Dead {
			t.Errorf("Get = %+v, %v, want %+v", got, err, now)
		}
	})
	t.Run("a session closed by hand is seen", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(t, "web", Launch(1, 1))
		other := w.Start(t, "other", Launch(2, 1))
		w.Close(p)
		w.Until(t, "it is gone", func() bool {
			_, err := w.Get(t.Context(), UID(1))
			return errors.Is(err, effects.ErrNotFound)
		})
		if got, err := w.Get(t.Context(), UID(2)); err != nil || got != other {
			t.Errorf("Get of the other = %+v, %v, want %+v", got, err, other)
		}
	})
	t.Run("a session renamed by hand is the same", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(t, "web", Launch(1, 1))
		w.Rename(p, "mine")
		w.Await(t, UID(1))
		want := p
		want.Name = "mine"
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != want {
			t.Errorf("Get = %+v, %v, want %+v", got, err, want)
		}
		must(t, w.Kill(t.Context(), p))
		if _, err := w.Get(t.Context(), UID(1)); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Get = %v, want ErrNotFound", err)
		}
	})
	t.Run("a server's death is one event and proved absence", func(t *testing.T) {
		w := newWorld(t)
		old := w.Start(t, "web", Launch(1, 1))
		w.Start(t, "api", Launch(2, 1))
		must(t, w.Look(t.Context()))
		for len(w.Changes) > 0 {
			<-w.Changes
		}
		w.KillServer()
		w.Await(t, "")
		for _, n := range []int{1, 2} {
			if _, err := w.Get(t.Context(), UID(n)); !errors.Is(err, effects.ErrNotFound) {
				t.Errorf("Get = %v, want ErrNotFound", err)
			}
		}
		now := w.Start(t, "web", Launch(1, 2))
		if now.Server == old.Server {
			t.Errorf("server = %+v, the dead one", now.Server)
		}
		must(t, w.Kill(t.Context(), old)) // its ids mean nothing to the new server
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != now {
			t.Errorf("Get = %+v, %v, want %+v", got, err, now)
		}
	})
	t.Run("a server that hangs is unreachable, not absent", func(t *testing.T) {
		w := newWorld(t)
		p := w.Start(t, "web", Launch(1, 1))
		w.Hang()
		w.Until(t, "it is unreachable", func() bool {
			_, err := w.Get(t.Context(), UID(1))
			return errors.Is(err, effects.ErrUnreachable)
		})
		for what, err := range map[string]error{
			"Look":   w.Look(t.Context()),
			"List":   second(w.List(t.Context())),
			"Create": second(w.Create(t.Context(), Want("api", Launch(2, 1)))),
			"Kill":   w.Kill(t.Context(), p),
		} {
			if !errors.Is(err, effects.ErrUnreachable) || errors.Is(err, effects.ErrNotFound) {
				t.Errorf("%s = %v, want ErrUnreachable", what, err)
			}
		}
		w.Resume()
		w.Until(t, "it is reachable", func() bool {
			got, err := w.Get(t.Context(), UID(1))
			return err == nil && got == p
		})
	})
	t.Run("what is pasted is read once, and shown, and Enter is another act", func(t *testing.T) {
		w := newWorld(t)
		p := w.reader(t, "web", Launch(1, 1))
		before, err := w.Screen(t.Context(), p)
		must(t, err)
		must(t, w.Paste(t.Context(), p, []byte("one #{pid} $(x) 'é'\ntwo ;")))
		brackets := "\x1b[200~one #{pid} $(x) 'é'\rtwo ;\x1b[201~"
		w.reads(t, p, brackets)
		w.shows(t, p, "two ;")
		must(t, w.Enter(t.Context(), p))
		w.reads(t, p, brackets+"\r")
		if now, err := w.Screen(t.Context(), p); err != nil || slices.Equal(now.Lines, before.Lines) {
			t.Errorf("Screen = %+v, %v, as before", now, err)
		}
		must(t, w.Paste(t.Context(), p, []byte(strings.Repeat("z", 100_000))))
		must(t, w.Enter(t.Context(), p))
		w.reads(t, p, brackets+"\r\x1b[200~"+strings.Repeat("z", 100_000)+"\x1b[201~\r")
		must(t, w.DropPaste(t.Context(), UID(1)))
	})
	t.Run("nothing is typed into what is not the program that was seen", func(t *testing.T) {
		w := newWorld(t)
		p := w.reader(t, "web", Launch(1, 1))
		other := p
		other.Process.PID++
		w.refuses(t, other, tmux.ErrDead)
		if got := w.Read(p); got != "" {
			t.Errorf("the program read %q", got)
		}
		unknown := p
		unknown.Process.StartTime = ""
		w.refuses(t, unknown, tmux.ErrInvalid)
		if err := w.Paste(t.Context(), p, nil); !errors.Is(err, tmux.ErrInvalid) {
			t.Errorf("Paste of nothing = %v, want ErrInvalid", err)
		}
		w.Die(p, "SIGKILL")
		w.Until(t, "it is dead", func() bool {
			p, err := w.Get(t.Context(), UID(1))
			return err == nil && p.Dead
		})
		w.refuses(t, p, tmux.ErrDead)
		if _, err := w.Screen(t.Context(), p); err != nil {
			t.Errorf("Screen of the dead = %v", err)
		}
		must(t, w.Kill(t.Context(), p))
		w.refuses(t, p, effects.ErrNotFound)
		if _, err := w.Screen(t.Context(), p); !errors.Is(err, effects.ErrNotFound) {
			t.Errorf("Screen of nothing = %v, want ErrNotFound", err)
		}
		must(t, w.DropPaste(t.Context(), UID(1)))
		w.KillServer()
		w.Await(t, "")
		w.refuses(t, p, effects.ErrNotFound)
		must(t, w.DropPaste(t.Context(), UID(1)))
	})
	t.Run("a server that hangs is typed nothing into", func(t *testing.T) {
		w := newWorld(t)
		p := w.reader(t, "web", Launch(1, 1))
		w.Hang()
		w.Until(t, "it is unreachable", func() bool {
			_, err := w.Get(t.Context(), UID(1))
			return errors.Is(err, effects.ErrUnreachable)
		})
		for what, err := range map[string]error{"Paste": w.Paste(t.Context(), p, []byte("x")), "Enter": w.Enter(t.Context(), p)} {
			if err == nil || errors.Is(err, effects.ErrUnreachable) {
				t.Errorf("%s = %v, want one that says that nothing was done", what, err)
			}
		}
		if _, err := w.Screen(t.Context(), p); !errors.Is(err, effects.ErrUnreachable) {
			t.Errorf("Screen = %v, want ErrUnreachable", err)
		}
		w.Resume()
		w.Until(t, "it is reachable", func() bool {
			_, err := w.Get(t.Context(), UID(1))
			return err == nil
		})
		must(t, w.Paste(t.Context(), p, []byte("y")))
		w.reads(t, p, "\x1b[200~y\x1b[201~")
	})
	t.Run("of two panes with one UID the latest attempt counts", func(t *testing.T) {
		w := newWorld(t)
		first := w.Start(t, "one", Launch(1, 1))
		second := w.Start(t, "two", Launch(1, 2))
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != second {
			t.Errorf("Get = %+v, %v, want %+v", got, err, second)
		}
		l, err := w.List(t.Context())
		if err != nil || !slices.Equal(l, []effects.TmuxPane{first, second}) {
			t.Errorf("List = %+v, %v, want both", l, err)
		}
		must(t, w.Kill(t.Context(), second))
		if got, err := w.Get(t.Context(), UID(1)); err != nil || got != first {
			t.Errorf("Get = %+v, %v, want %+v", got, err, first)
		}
	})
}

// reader starts a session whose program reads what is typed.
func (w *World) reader(t *testing.T, name string, l effects.LaunchID) effects.TmuxPane {
	t.Helper()
	w.PrepareReader(l)
	p, err := w.Create(t.Context(), Want(name, l))
	must(t, err)
	w.often(t, name+" reads", func() bool { return w.Reading(p) })
	return p
}

// shows waits until a pane shows text; no event tells of it.
func (w *World) shows(t *testing.T, p effects.TmuxPane, text string) {
	t.Helper()
	w.often(t, fmt.Sprintf("%s shows %q", p.Name, text), func() bool {
		s, err := w.Screen(t.Context(), p)
		return err == nil && strings.Contains(strings.Join(s.Lines, "\n"), text)
	})
}

func (w *World) reads(t *testing.T, p effects.TmuxPane, want string) {
	t.Helper()
	w.often(t, p.Name+" has read enough", func() bool { return len(w.Read(p)) >= len(want) })
	if got := w.Read(p); got != want {
		t.Errorf("%s read %q, want %q", p.Name, got, want)
	}
}

// refuses sees that neither text nor Enter comes to the pane.
func (w *World) refuses(t *testing.T, p effects.TmuxPane, want error) {
	t.Helper()
	if err := w.Paste(t.Context(), p, []byte("x")); !errors.Is(err, want) || errors.Is(err, effects.ErrUnreachable) {
		t.Errorf("Paste = %v, want %v", err, want)
	}
	if err := w.Enter(t.Context(), p); !errors.Is(err, want) || errors.Is(err, effects.ErrUnreachable) {
		t.Errorf("Enter = %v, want %v", err, want)
	}
}

func (w *World) often(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(Limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("it never came that %s", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
