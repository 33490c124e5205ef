package main

import (
	"bytes"
	"context"
	"os"
	"testing"
)

// Who is told to end while it starts ends in order: an init system would call
// anything else a failure.
func TestStopWhileStarting(t *testing.T) {
	dir, err := os.MkdirTemp("", "skc") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out bytes.Buffer
	if code := run(ctx, []string{"--home", dir, "--launcher", self}, func(string) string { return "" }, &out, &out); code != exitOK {
		t.Errorf("code %d, want %d: %s", code, exitOK, &out)
	}
}
