// Package home says where everything of one skc lies (DESIGN.md 4): under one
// folder with --home, else in the XDG folders. It only computes paths; whoever
// owns a folder makes it.
package home

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Home is the set of folders and files of one skc.
type Home struct {
	Spool string // desired state, the user's
	State string // objects, events, launch files: 0600 in 0700
	Run   string // sockets and the lock: 0600 in 0700
}

// Objects holds one file an object.
func (h Home) Objects() string { return filepath.Join(h.State, "objects") }

// Sources holds what the spool reader reports of roots and refused files.
func (h Home) Sources() string { return filepath.Join(h.State, "sources") }

// Events holds the event log.
func (h Home) Events() string { return filepath.Join(h.State, "events") }

// Audit holds the audit file of lifecycle requests.
func (h Home) Audit() string { return filepath.Join(h.State, "audit") }

// Notifications holds what programs that bring requests look for, as the
// discovery file of the lifecycle control.
func (h Home) Notifications() string { return filepath.Join(h.State, "notifications") }

// Managed is the source root of the objects that the controller itself asks for.
func (h Home) Managed() string { return filepath.Join(h.State, "managed") }

// Quarantine holds what was set aside, and the plans that say so.
func (h Home) Quarantine() string { return filepath.Join(h.State, "quarantine") }

// Repositories holds one file for each repository in which a worktree was made.
func (h Home) Repositories() string { return filepath.Join(h.State, "repositories") }

// Launch holds launch files, each for the moment between its start and its exec.
func (h Home) Launch() string { return filepath.Join(h.State, "launch") }

// Prompts holds receipts of startup prompts, and prompts until they are taken.
func (h Home) Prompts() string { return filepath.Join(h.State, "prompts") }

// TmuxSocket is the socket of the private tmux server.
func (h Home) TmuxSocket() string { return filepath.Join(h.Run, "tmux.sock") }

// ControlSocket serves health and metrics of the controller.
func (h Home) ControlSocket() string { return filepath.Join(h.Run, "skcd.sock") }

// Lock is held by the one controller of this home.
func (h Home) Lock() string { return filepath.Join(h.Run, "skcd.lock") }

// maxSocket is what the kernel takes in sun_path, less the closing zero: 107 on
// Linux, 103 on darwin. The smaller serves both.
const maxSocket = 103

// Env looks up one environment variable, as os.Getenv does.
type Env func(string) string

// Find resolves the folders: dir (--home) when it is given, else SKC_HOME, else
// XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_RUNTIME_DIR with their defaults.
// Relative folders are resolved against cwd.
func Find(dir string, env Env, cwd string) (Home, error) {
	abs := func(p string) string {
		if !filepath.IsAbs(p) {
			p = filepath.Join(cwd, p)
		}
		return filepath.Clean(p)
	}
	if dir == "" {
		dir = env("SKC_HOME")
	}
	if dir != "" {
		dir = abs(dir)
		return Home{filepath.Join(dir, "spool"), filepath.Join(dir, "state"), filepath.Join(dir, "run")}, nil
	}
	user := env("HOME")
	base := func(name, fallback string) (string, error) {
		if v := env(name); filepath.IsAbs(v) { // the XDG rules pass over relative ones
			return filepath.Join(v, "skc"), nil
		}
		if user == "" {
			return "", fmt.Errorf("neither %s nor HOME is set; say --home DIR", name)
		}
		return filepath.Join(user, fallback, "skc"), nil
	}
	config, err := base("XDG_CONFIG_HOME", ".config")
	if err != nil {
		return Home{}, err
	}
	state, err := base("XDG_STATE_HOME", ".local/state")
	if err != nil {
		return Home{}, err
	}
	run := filepath.Join(state, "run")
	if v := env("XDG_RUNTIME_DIR"); filepath.IsAbs(v) {
		run = filepath.Join(v, "skc")
	}
	return Home{filepath.Join(config, "spool"), state, run}, nil
}

// ErrPath is matched when a folder cannot be used because of its name.
var ErrPath = errors.New("folder cannot be used")

// Check refuses folders that a socket or a tmux command line cannot carry.
func (h Home) Check() error {
	for _, s := range []string{h.TmuxSocket(), h.ControlSocket()} {
		if len(s) > maxSocket {
			return fmt.Errorf("%w: the socket path %s has %d bytes, the kernel takes %d; choose a shorter --home", ErrPath, s, len(s), maxSocket)
		}
	}
	for _, p := range []string{h.Spool, h.State, h.Run} {
		if strings.ContainsAny(p, "\n\r\x00") {
			return fmt.Errorf("%w: %q holds a line end or NUL", ErrPath, p)
		}
	}
	return nil
}

// Expand makes a path of a spec absolute: ~ and ~/ are the user's home folder.
func Expand(path, userHome string) string {
	if path == "~" {
		return userHome
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(userHome, rest)
	}
	return filepath.Clean(path)
}
