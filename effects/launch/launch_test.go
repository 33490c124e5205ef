package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/launch/plan"
)

// launcher is the real one, built once.
var launcher string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "skc")
	if err != nil {
		panic(err)
	}
	launcher = filepath.Join(dir, "skc-launch")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", launcher, "skc.dev/skc/cmd/skc-launch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func newID() effects.LaunchID {
	return effects.LaunchID{UID: "01234567-89ab-cdef-0123-456789abcdef", Generation: 3, Attempt: 1}
}

// result is what one start left behind.
type result struct {
	out, terminal string
	code          int
	failure       *Failure
}

// launch writes p and runs the launcher as tmux would. wrap, when given, is a
// shell command that ends by running "$@".
func launch(t *testing.T, p Plan, wrap string) result {
	t.Helper()
	dir, id := t.TempDir(), newID()
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	file, err := Write(new(files.Layer), dir, id, p)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode() != 0o600 {
		t.Errorf("launch file: %v, %v; want mode 0600", fi.Mode(), err)
	}
	argv := []string{launcher, file}
	if wrap != "" {
		argv = append([]string{"/bin/sh", "-c", wrap, "sh"}, argv...)
	}
	r := start(t, argv)
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the launch file is still there: %v", err)
	}
	if r.failure, err = ReadFailure(dir, id); err != nil {
		t.Fatal(err)
	}
	if r.failure != nil {
		fi, err := os.Stat(file + plan.FailedSuffix)
		if err != nil || fi.Mode() != 0o600 {
			t.Errorf("report: %v, %v; want mode 0600", fi.Mode(), err)
		}
		if want := "skc: " + r.failure.Message + "\r\n"; r.terminal != want {
			t.Errorf("the terminal says %q, the report %q", r.terminal, want)
		}
	}
	return r
}

func start(t *testing.T, argv []string) result {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"TERM=tmux-256color", "TMUX=/run/s,1,2", "TMUX_PANE=%7", "FOO=first", "PATH=/nowhere"}
	var out, terminal bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &terminal
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return result{out: out.String(), terminal: terminal.String(), code: cmd.ProcessState.ExitCode()}
}

func (r result) wantOut(t *testing.T, want string) {
	t.Helper()
	if r.out != want || r.code != 0 || r.failure != nil || r.terminal != "" {
		t.Errorf("got %.300q (%d bytes), code %d, failure %v, terminal %q\nwant %.300q (%d bytes)",
			r.out, len(r.out), r.code, r.failure, r.terminal, want, len(want))
	}
}

// printer prints its own arguments as the kernel holds them.
func printer(args ...string) []string {
	return append([]string{"sh", "-c", "cat /proc/$$/cmdline; :", "x"}, args...)
}

func TestArgv(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("no /proc")
	}
	long := strings.Repeat("x", 100_000)
	for name, args := range map[string][]string{
		"B-011":              {"a b", "$HOME", "it's", "*", "", "back\\slash", "line1\nline2"},
		"looks like options": {"-e", "X=1", "--", "-", "--help", "-t", "="},
		"tmux would read":    {"#(touch /tmp/x)", "a;", ";", "#{pid}", "%if", "$0", "`id`", "~", "{", "}"},
		"only empty":         {"", "", ""},
		"not text":           {"\xff\xfe", "\x01\x1b[2J\x7f", "\r\n\t", "\xe2\x80\xae", "é漢😀"},
		"12000 bytes":        {long[:12_000]},
		"17000 bytes":        {long[:17_000]},
		"100000 bytes":       {long},
		"the most":           {strings.Repeat("y", 131071)},
		"many":               slices.Repeat([]string{"a"}, 4090),
		"a megabyte":         slices.Repeat([]string{long}, 10),
	} {
		t.Run(name, func(t *testing.T) {
			argv := printer(args...)
			launch(t, Plan{Argv: argv, Env: []string{path}}, "").wantOut(t, strings.Join(argv, "\x00")+"\x00")
		})
	}
}

// B-010: nothing is shifted or taken for an option.
func TestOptionsAreNoOptions(t *testing.T) {
	for _, argv := range [][]string{{"-e", "X=1", "sleep", "600"}, {"--", "sleep", "600"}} {
		r := launch(t, Plan{Argv: argv, Env: []string{path}}, "")
		if r.code != 127 || r.failure == nil || r.failure.Reason != v1alpha1.ReasonCommandNotFound {
			t.Errorf("%q: code %d, failure %+v; want 127, CommandNotFound", argv, r.code, r.failure)
		}
	}
}

func TestEnvironment(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc")
	}
	var large []string
	for i := range 40 {
		large = append(large, fmt.Sprintf("V%d=%s", i, strings.Repeat("v", 1000)))
	}
	tmux := []string{"TERM=tmux-256color", "TMUX=/run/s,1,2", "TMUX_PANE=%7"}
	for _, c := range []struct {
		name      string
		env, want []string
	}{
		{name: "nothing of whoever started tmux", env: []string{path}, want: append([]string{path}, tmux...)},
		{name: "the plan's TERM", env: []string{path, "TERM=dumb"}, want: append([]string{path, "TERM=dumb"}, tmux[1:]...)},
		{name: "TERM set to nothing", env: []string{path, "TERM="}, want: append([]string{path, "TERM="}, tmux[1:]...)},
		{name: "odd values", env: []string{path, "A=", "B==", "C= x\n\x01\xff", "D=$HOME"}, want: append([]string{path, "A=", "B==", "C= x\n\x01\xff", "D=$HOME"}, tmux...)},
		{name: "40 of 1000 bytes", env: append([]string{path}, large...), want: append(append([]string{path}, large...), tmux...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := launch(t, Plan{Argv: []string{"cat", "/proc/self/environ"}, Env: c.env}, "")
			r.wantOut(t, strings.Join(c.want, "\x00")+"\x00")
		})
	}
}

func TestFolder(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	launch(t, Plan{Argv: []string{"pwd"}, Env: []string{path}, Dir: dir}, "").wantOut(t, dir+"\n")
}

func script(t *testing.T, file, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// The program is found in the PATH that it will see itself, as execvp does.
func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	script(t, dir+"/bin/tool", "#!/bin/sh\necho bin\n", 0o755)
	script(t, dir+"/later/tool", "#!/bin/sh\necho later\n", 0o755)
	script(t, dir+"/denied/tool", "#!/bin/sh\n", 0o644)
	script(t, dir+"/tool", "#!/bin/sh\necho here\n", 0o755)
	script(t, dir+"/folder/tool/x", "", 0o644)
	for _, c := range []struct{ name, path, program, want string }{
		{"first in PATH", dir + "/bin:" + dir + "/later", "tool", "bin"},
		{"passes over what is missing", dir + "/missing:" + dir + "/tool:" + dir + "/later", "tool", "later"},
		{"passes over what may not be run", dir + "/denied:" + dir + "/bin", "tool", "bin"},
		{"passes over folders", dir + "/folder:" + dir + "/bin", "tool", "bin"},
		{"PATH relative to the session's folder", "bin", "tool", "bin"},
		{"an empty entry is the session's folder", dir + "/missing:", "tool", "here"},
		{"relative to the session's folder", "/bin", "bin/tool", "bin"},
		{"dot", "/bin", "./tool", "here"},
		{"absolute", "", dir + "/later/tool", "later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Plan{Argv: []string{c.program}, Env: []string{"PATH=" + c.path}, Dir: dir}
			launch(t, p, "").wantOut(t, c.want+"\n")
		})
	}
	t.Run("no PATH", func(t *testing.T) {
		launch(t, Plan{Argv: []string{"echo", "found"}}, "").wantOut(t, "found\n")
	})
}

func TestFailures(t *testing.T) {
	dir := t.TempDir()
	env := "PATH=" + dir + "/path:/usr/bin:/bin"
	script(t, dir+"/plain", "#!/bin/sh\n", 0o644)
	script(t, dir+"/broken", "#!/no/such/interpreter\n", 0o755)
	script(t, dir+"/path/inpath", "#!/no/such/interpreter\n", 0o755)
	script(t, dir+"/path/denied", "#!/bin/sh\n", 0o644)
	script(t, dir+"/noshebang", "echo run by a shell\n", 0o755)
	script(t, dir+"/empty", "", 0o755)
	const canary = "c4n4ry-5ecret"
	for _, c := range []struct {
		name    string
		argv    []string
		dir     string
		code    int
		reason  string
		message string // a part of it
	}{
		{"missing in PATH", []string{"no-such-program"}, "", 127, v1alpha1.ReasonCommandNotFound, `"no-such-program" in the PATH`},
		{"missing", []string{dir + "/missing"}, "", 127, v1alpha1.ReasonCommandNotFound, "missing"},
		{"below a file", []string{dir + "/plain/x"}, "", 127, v1alpha1.ReasonCommandNotFound, "plain/x"},
		{"only spaces", []string{" "}, "", 127, v1alpha1.ReasonCommandNotFound, `" "`},
		{"escapes are neutral", []string{"a\x1b[2Jb\n"}, "", 127, v1alpha1.ReasonCommandNotFound, `"a\x1b[2Jb\n"`},
		{"long names are cut", []string{strings.Repeat("n", 5000)}, "", 127, v1alpha1.ReasonCommandNotFound, strings.Repeat("n", 200) + `"...`},
		{"no permission", []string{dir + "/plain"}, "", 126, v1alpha1.ReasonPermissionDenied, "permission denied"},
		{"no permission in PATH", []string{"denied"}, "", 126, v1alpha1.ReasonPermissionDenied, dir + "/path/denied"},
		{"folder", []string{dir}, "", 126, v1alpha1.ReasonPermissionDenied, "is a folder"},
		{"broken interpreter", []string{dir + "/broken"}, "", 126, v1alpha1.ReasonExecFailed, "interpreter that is not there"},
		{"broken interpreter in PATH", []string{"inpath"}, "", 126, v1alpha1.ReasonExecFailed, "interpreter that is not there"},
		{"no shebang", []string{dir + "/noshebang"}, "", 126, v1alpha1.ReasonExecFailed, "exec format error"},
		{"empty program", []string{dir + "/empty"}, "", 126, v1alpha1.ReasonExecFailed, "exec format error"},
		{"missing folder", []string{"true"}, dir + "/gone", 125, v1alpha1.ReasonWorkingDirectoryMissing, dir + "/gone"},
		{"file for a folder", []string{"true"}, dir + "/plain", 125, v1alpha1.ReasonWorkingDirectoryMissing, "no folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := launch(t, Plan{Argv: c.argv, Env: []string{env, "TOKEN=" + canary}, Dir: c.dir}, "")
			if r.failure == nil {
				t.Fatalf("no failure reported; code %d, terminal %q", r.code, r.terminal)
			}
			if r.code != c.code || r.failure.Reason != c.reason || !strings.Contains(r.failure.Message, c.message) || r.out != "" {
				t.Errorf("code %d, %+v, out %q; want %d, %s, %q", r.code, r.failure, r.out, c.code, c.reason, c.message)
			}
			if strings.Contains(r.terminal+r.failure.Message, canary) {
				t.Error("a value of the environment is told")
			}
		})
	}
}

func TestFolderNotPermitted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir, id := t.TempDir(), newID()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := Write(new(files.Layer), dir, id, Plan{Argv: []string{"true"}, Env: []string{path}, Dir: private})
	if err != nil {
		t.Fatal(err)
	}
	const other = 65534
	if err := errors.Join(os.Chown(file, other, other), os.Chown(dir, other, other), os.Chmod(filepath.Dir(launcher), 0o755)); err != nil {
		t.Fatal(err)
	}
	r := start(t, []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", launcher, file})
	f, err := ReadFailure(dir, id)
	if err != nil || f == nil {
		t.Fatalf("ReadFailure = %v, %v; terminal %q", f, err, r.terminal)
	}
	if r.code != 125 || f.Reason != v1alpha1.ReasonPermissionDenied {
		t.Errorf("code %d, %+v; want 125, PermissionDenied", r.code, f)
	}
}

// What the launcher is started with by accident does not reach the program.
func TestNothingLeaks(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc")
	}
	t.Run("descriptors", func(t *testing.T) {
		p := Plan{Argv: []string{"ls", "/proc/self/fd"}, Env: []string{path}}
		launch(t, p, `exec "$@" 3</dev/null 7</dev/null 9</dev/null`).wantOut(t, "0\n1\n2\n3\n") // 3 is ls's own
	})
	t.Run("signals", func(t *testing.T) {
		p := Plan{Argv: []string{"grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"}, Env: []string{path}}
		r := launch(t, p, `trap "" HUP INT QUIT TERM TSTP USR1 CHLD; exec /usr/bin/env --block-signal=TERM,HUP,USR2 "$@"`)
		r.wantOut(t, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n")
	})
	t.Run("limits", func(t *testing.T) { // Go raises the soft limit of descriptors for itself
		p := Plan{Argv: []string{"sh", "-c", "ulimit -Sn; ulimit -Hn"}, Env: []string{path}}
		launch(t, p, `ulimit -Sn 512; ulimit -Hn 900; exec "$@"`).wantOut(t, "512\n900\n")
	})
	t.Run("file mode mask", func(t *testing.T) {
		p := Plan{Argv: []string{"sh", "-c", "umask"}, Env: []string{path}}
		launch(t, p, `umask 077; exec "$@"`).wantOut(t, "0022\n")
	})
	t.Run("command line", func(t *testing.T) { // what ps shows until exec is the file's name
		p := Plan{Argv: []string{"true"}, Env: []string{path, "TOKEN=c4n4ry"}}
		launch(t, p, `case "$*" in *c4n4ry*) exit 9;; esac; exec "$@"`).wantOut(t, "")
	})
}

// Only a file that this user alone could have written is believed.
func TestUnsafeLaunchFile(t *testing.T) {
	good := Plan{Argv: []string{"echo", "ran"}, Env: []string{path}, Dir: "/"}.Encode()
	for _, c := range []struct {
		name string
		put  func(t *testing.T, file string)
	}{
		{"open to others", func(t *testing.T, f string) { script(t, f, string(good), 0o644) }},
		{"executable", func(t *testing.T, f string) { script(t, f, string(good), 0o700) }},
		{"link", func(t *testing.T, f string) {
			if err := os.Symlink(script(t, f+".target", string(good), 0o600), f); err != nil {
				t.Fatal(err)
			}
		}},
		{"folder", func(t *testing.T, f string) {
			if err := os.Mkdir(f, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"pipe", func(t *testing.T, f string) {
			if out, err := exec.Command("mkfifo", "-m", "600", f).CombinedOutput(); err != nil {
				t.Skipf("mkfifo: %v %s", err, out)
			}
		}},
		{"another user's", func(t *testing.T, f string) {
			script(t, f, string(good), 0o600)
			if err := os.Chown(f, 65534, -1); err != nil {
				t.Skip(err)
			}
		}},
		{"cut", func(t *testing.T, f string) { script(t, f, string(good[:len(good)-1]), 0o600) }},
		{"empty", func(t *testing.T, f string) { script(t, f, "", 0o600) }},
		{"newer", func(t *testing.T, f string) {
			script(t, f, strings.Replace(string(good), "skc-launch 1", "skc-launch 2", 1), 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, id := t.TempDir(), newID()
			file := filepath.Join(dir, id.FileName())
			c.put(t, file)
			r := start(t, []string{launcher, file})
			f, err := ReadFailure(dir, id)
			if err != nil || f == nil || f.Reason != v1alpha1.ReasonExecFailed || r.code != 125 || r.out != "" {
				t.Errorf("code %d, out %q, failure %+v, %v; want 125, ExecFailed, nothing run", r.code, r.out, f, err)
			}
		})
	}
}

// Someone started the pane anew by hand: the launch file is used up.
func TestLaunchFileUsedUp(t *testing.T) {
	dir, id := t.TempDir(), newID()
	r := start(t, []string{launcher, filepath.Join(dir, id.FileName())})
	if r.code != 125 || !strings.Contains(r.terminal, "used up") {
		t.Errorf("code %d, terminal %q", r.code, r.terminal)
	}
	if f, err := ReadFailure(dir, id); f != nil || err != nil {
		t.Errorf("ReadFailure = %v, %v; want none", f, err)
	}
	if r := start(t, []string{launcher}); r.code != 125 {
		t.Errorf("without a file: code %d, want 125", r.code)
	}
}

// Of many that were started with one file, one runs.
func TestLaunchFileIsUsedOnce(t *testing.T) {
	dir, id := t.TempDir(), newID()
	file, err := Write(new(files.Layer), dir, id, Plan{Argv: []string{"sh", "-c", "echo >>ran"}, Env: []string{path}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _ = exec.Command(launcher, file).Run() })
	}
	wg.Wait()
	if b, err := os.ReadFile(filepath.Join(dir, "ran")); err != nil || string(b) != "\n" {
		t.Errorf("ran %d times (%v), want once", len(b), err)
	}
}

func TestWriteRefuses(t *testing.T) {
	env := []string{path}
	const secret = "s3cr3t"
	for _, c := range []struct {
		name  string
		plan  Plan
		match error
		says  string
	}{
		{"no program", Plan{Dir: "/"}, ErrInvalid, "name is empty"},
		{"empty program", Plan{Argv: []string{""}, Dir: "/"}, ErrInvalid, "name is empty"},
		{"relative folder", Plan{Argv: []string{"a"}, Dir: "x"}, ErrInvalid, "not absolute"},
		{"NUL in an argument", Plan{Argv: []string{"a", "b\x00" + secret}, Dir: "/"}, ErrInvalid, "argument 1"},
		{"NUL in a variable", Plan{Argv: []string{"a"}, Env: []string{"A=\x00" + secret}, Dir: "/"}, ErrInvalid, "variable A"},
		{"NUL in the folder", Plan{Argv: []string{"a"}, Dir: "/\x00"}, ErrInvalid, "NUL"},
		{"variable without a name", Plan{Argv: []string{"a"}, Env: []string{"=" + secret}, Dir: "/"}, ErrInvalid, "no name"},
		{"long argument", Plan{Argv: []string{"a", strings.Repeat("x", 131072)}, Env: env, Dir: "/"}, ErrTooLarge, "131071 bytes"},
		{"long variable", Plan{Argv: []string{"a"}, Env: []string{"A=" + strings.Repeat("x", 131070)}, Dir: "/"}, ErrTooLarge, "131071 bytes"},
		{"all together", Plan{Argv: slices.Repeat([]string{strings.Repeat("x", 131071)}, 60), Env: env, Dir: "/"}, ErrTooLarge, fmt.Sprint(maxTotal()-reserved, " bytes together")},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Write(new(files.Layer), dir, newID(), c.plan)
			if !errors.Is(err, c.match) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v; want %v with %q", err, c.match, c.says)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// What Write takes, the kernel takes.
func TestLargestPlan(t *testing.T) {
	const one = 100_000
	n := (maxTotal() - reserved - 1000) / (one + 1 + pointer)
	argv := append([]string{"true"}, slices.Repeat([]string{strings.Repeat("x", one)}, n)...)
	launch(t, Plan{Argv: argv, Env: []string{path}}, "").wantOut(t, "")
}

func TestSweep(t *testing.T) {
	layer, dir := new(files.Layer), t.TempDir()
	p := Plan{Argv: []string{"true"}, Env: []string{path}, Dir: "/"}
	a, b := newID(), newID()
	b.Attempt = 2
	for _, id := range []effects.LaunchID{a, b} {
		file, err := Write(layer, dir, id, p)
		if err != nil {
			t.Fatal(err)
		}
		script(t, file+plan.FailedSuffix, string(Failure{Reason: "ExecFailed", Message: "m"}.Encode()), 0o600)
	}
	script(t, dir+"/notes.txt", "the user's", 0o600)
	left, err := Leftovers(dir)
	if err != nil || len(left) != 4 || left[0].UID != a.UID || left[0].What == left[1].What {
		t.Errorf("Leftovers = %+v, %v", left, err)
	}
	if left, err := Leftovers(dir + "/missing"); err != nil || len(left) != 0 {
		t.Errorf("Leftovers of no folder = %+v, %v", left, err)
	}
	n, err := Sweep(layer, dir, func(id effects.LaunchID) bool { return id == b })
	if n != 2 || err != nil {
		t.Errorf("Sweep = %d, %v; want 2", n, err)
	}
	if f, err := ReadFailure(dir, b); f == nil || err != nil {
		t.Errorf("the kept report is gone: %v, %v", f, err)
	}
	if n, err := Sweep(layer, dir, func(effects.LaunchID) bool { return false }); n != 2 || err != nil {
		t.Errorf("Sweep of the rest = %d, %v; want 2", n, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != "notes.txt" {
		t.Errorf("left: %v, %v; want notes.txt only", names, err)
	}
	if n, err := Sweep(layer, dir+"/missing", func(effects.LaunchID) bool { return false }); n != 0 || err != nil {
		t.Errorf("Sweep of no folder = %d, %v", n, err)
	}
}

func TestReportCutShort(t *testing.T) {
	dir, id := t.TempDir(), newID()
	whole := string(Failure{Reason: "ExecFailed", Message: "m"}.Encode())
	for n := range len(whole) {
		script(t, filepath.Join(dir, id.FileName()+plan.FailedSuffix), whole[:n], 0o600)
		if f, err := ReadFailure(dir, id); f != nil || err != nil {
			t.Fatalf("ReadFailure of %d bytes = %v, %v; want none", n, f, err)
		}
	}
}

func TestReasonsAreThoseOfTheAPI(t *testing.T) {
	for got, want := range map[string]string{
		plan.CommandNotFound:         v1alpha1.ReasonCommandNotFound,
		plan.PermissionDenied:        v1alpha1.ReasonPermissionDenied,
		plan.WorkingDirectoryMissing: v1alpha1.ReasonWorkingDirectoryMissing,
		plan.ExecFailed:              v1alpha1.ReasonExecFailed,
	} {
		if got != want {
			t.Errorf("%s is %s in the API", got, want)
		}
	}
}

// The launcher's start is part of every start: it links little and stays small.
func TestLauncherIsSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "skc.dev/skc/cmd/skc-launch").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"fmt", "reflect", "net", "regexp", "encoding/json", "os/exec", "context"} {
		if slices.Contains(strings.Fields(string(out)), heavy) {
			t.Errorf("the launcher links %s", heavy)
		}
	}
	fi, err := os.Stat(launcher)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(2 << 20); fi.Size() > most {
		t.Errorf("the launcher has %d bytes, at most %d are meant", fi.Size(), most)
	}
}

// BenchmarkLauncher starts the launcher, a shell that execs the same program,
// and the program alone, in turns, and reports how the launcher's time relates
// to the shell's: whole, as performance.md P14 asks, and less the program.
func BenchmarkLauncher(b *testing.B) {
	dir := b.TempDir()
	p := Plan{Argv: []string{"/bin/true"}, Env: []string{path}, Dir: dir}
	run := func(argv ...string) time.Duration {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"TERM=dumb", "PATH=/usr/bin:/bin"}
		began := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	var ours, shell, bare []time.Duration
	for b.Loop() {
		file, err := Write(new(files.Layer), dir, newID(), p)
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, run(launcher, file))
		shell = append(shell, run("/bin/sh", "-c", "exec true"))
		bare = append(bare, run("/bin/true"))
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds())
	}
	o, s, t := median(ours), median(shell), median(bare)
	b.ReportMetric(o, "launcher-µs")
	b.ReportMetric(s, "shell-µs")
	b.ReportMetric(t, "true-µs")
	b.ReportMetric(o/s, "ratio")
	b.ReportMetric((o-t)/(s-t), "ratio-less-true")
}
