//go:build skcfaults

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

// TestEveryCallFails fails each call of the file layer, and each place of each
// step, in the life of a control: it tells, the port is closed at the end, and
// what is left in the folder is nothing, or says that it is stale, or is taken
// away by the next one.
func TestEveryCallFails(t *testing.T) {
	t.Cleanup(func() { _ = fault.Set("") })
	var places []string
	for n := 1; n < 25; n++ {
		places = append(places, fmt.Sprintf("calls=EIO@%d", n), fmt.Sprintf("calls=ENOSPC@%d", n), fmt.Sprintf("calls=EROFS@%d+", n))
	}
	for _, point := range []string{"control.publish", "control.withdraw"} {
		for _, phase := range []fault.Phase{fault.Before, fault.During, fault.After} {
			places = append(places, fmt.Sprintf("%s:%s=EIO", point, phase))
		}
	}
	told, stale := 0, 0
	for _, place := range places {
		dir := filepath.Join(t.TempDir(), "notifications")
		must(t, fault.Set(""))
		once := func(place string) error {
			s, err := Listen(Options{Address: "127.0.0.1:0", Owner: "o", Dir: dir, Files: &files.Layer{}, Submitter: submitter(done), Clock: clock.RealClock{}, Log: logr.Discard()})
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			must(t, fault.Set(place))
			go func() { ended <- s.Serve(ctx) }()
			published := func() bool {
				text, err := os.ReadFile(filepath.Join(dir, FileName))
				return err == nil && strings.Contains(string(text), s.URL())
			}
			eventually(t, "it is published, or has failed", func() bool { return published() || len(ended) == 1 })
			cancel()
			err = <-ended
			must(t, fault.Set(""))
			if c, dialErr := net.Dial("tcp", s.listener.Addr().String()); dialErr == nil {
				t.Errorf("%s: the port is still open: %v", place, c.Close())
			}
			return err
		}
		if once(place) != nil {
			told++
		}
		if text, err := os.ReadFile(filepath.Join(dir, FileName)); err == nil {
			var r Record
			must(t, json.Unmarshal(text, &r))
			if r.Stale {
				stale++
			}
		}
		if err := once(""); err != nil {
			t.Errorf("%s, and once more: %v", place, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) != 0 {
			t.Errorf("%s: left are %v, %v", place, entries, err)
		}
	}
	if told < 10 || stale == 0 {
		t.Errorf("%d failures were told, %d files said that they are stale", told, stale)
	}
	t.Logf("%d places, %d failures told, %d stale files", len(places), told, stale)
}
