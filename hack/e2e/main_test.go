//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skc.dev/skc/hack/e2e/world"
)

func TestMain(m *testing.M) {
	if helper := os.Getenv("E2E_HELPER"); helper != "" {
		os.Exit(help(helper, os.Args[1:]))
	}
	// Whatever skc makes private must be so under the widest umask.
	syscall.Umask(0)
	// The tests mostly wait for each other's processes.
	_ = flag.Set("test.parallel", "6")
	flag.Parse()
	os.Exit(m.Run())
}

// help is what lib.sh asks of this binary.
func help(helper string, args []string) int {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	for limit := time.Now().Add(world.Patience); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		if !world.Lives(pid) || helper == "ready" && owns(pid, args[1]) && ready(args[1]) {
			return 0
		}
	}
	fmt.Printf("FAIL: %s %v: too late\n", helper, args)
	return 1
}

// owns tells whether it is this skcd whose socket that is, and not one that ran
// before: the owner writes its pid beside it.
func owns(pid int, socket string) bool {
	hint, err := os.ReadFile(filepath.Join(filepath.Dir(socket), "skcd.lock"))
	return err == nil && strings.HasPrefix(string(hint), fmt.Sprintf("pid %d ", pid))
}

func ready(socket string) bool {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	r, err := c.Get("http://skcd/readyz")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// session is a Session with a folder of its own, a command and more lines of
// its spec.
func session(name, command string, more ...string) string {
	text := fmt.Sprintf("apiVersion: skc.dev/v1alpha1\nkind: Session\nmetadata: {name: %s}\nspec:\n  target: {plainDir: {path: \"@WORK@/%s\"}}\n  command: %s\n", name, name, command)
	for _, m := range more {
		text += "  " + m + "\n"
	}
	return text
}

// sleeper is a command that logs its start and stays; it ends on SIGTERM.
const sleeper = `[sh, -c, "echo start $$ >> log; exec sleep 6000"]`

// quote writes a text as YAML and JSON read it back.
func quote(s string) string { return strconv.Quote(s) }

// script is sh -c TEXT as a command in YAML.
func script(text string, args ...string) string {
	all := []string{"sh", "-c", quote(text)}
	for _, a := range args {
		all = append(all, quote(a))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
