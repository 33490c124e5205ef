package tmux

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"skc.dev/skc/effects"
)

// ListOnce is Client.List without a Client: the panes that carry a mark. Whose
// a pane is, its mark proves; the server and the start times of processes are
// not told. It matches effects.ErrUnreachable when no server answers, and
// effects.ErrUnavailable when there is no tmux.
func ListOnce(ctx context.Context, tmuxBinary, socket string) ([]effects.TmuxPane, error) {
	out, err := one(ctx, tmuxBinary, socket, nil, "list-panes", "-a", "-F", paneFormat)
	if errors.Is(err, effects.ErrNotFound) { // a server without sessions
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list panes: %w", err)
	}
	var panes []effects.TmuxPane
	for _, r := range parseRows(strings.Split(out, "\n")) {
		if r.launch.UID == "" {
			continue
		}
		panes = append(panes, effects.TmuxPane{
			Server: effects.TmuxServer{Socket: socket}, Launch: r.launch, Name: r.name, SessionID: r.session, WindowID: r.window, PaneID: r.pane,
			Process: effects.ProcessID{PID: r.pid}, Dead: r.dead, ExitKnown: r.known, ExitCode: r.code, Signal: r.signal,
		})
	}
	return panes, nil
}
