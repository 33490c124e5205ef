package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
)

func TestBaseEnv(t *testing.T) {
	u := User{Name: "ann", Home: "/home/ann", Shell: "/bin/zsh"}
	t.Setenv("FOO", "first") // B-014: nothing of our own environment counts
	t.Setenv("HOME", "/elsewhere")
	base := []string{
		"HOME=/home/ann", "USER=ann", "LOGNAME=ann", "SHELL=/bin/zsh",
		"PATH=/home/ann/.local/bin:/home/ann/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
	}
	got, err := BaseEnv(u, nil)
	if err != nil || !slices.Equal(got, base) {
		t.Errorf("got %q, %v; want %q", got, err, base)
	}
	got, err = BaseEnv(u, []string{"LANG=de_DE.UTF-8", "EXTRA=", "A=b=c"})
	want := append(slices.Clone(base[:5]), "LANG=de_DE.UTF-8", "EXTRA=", "A=b=c")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{"", "A", "=b", "A=\x00"} {
		if _, err := BaseEnv(u, []string{"OK=1", bad}); err == nil || !strings.Contains(err.Error(), "addition 2") {
			t.Errorf("addition %q: got %v, want an error that counts it", bad, err)
		}
	}
}

func TestJoin(t *testing.T) {
	got := Join([]string{"A=1", "B=2"}, nil, []string{"B=3", "C=4", "C=5"}, Markers("u", "ns", "web"))
	want := []string{"A=1", "B=3", "C=5", "SKC_SESSION_UID=u", "SKC_SESSION_NAMESPACE=ns", "SKC_SESSION_NAME=web"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestResolve(t *testing.T) {
	home := t.TempDir()
	put := func(name, content string) string {
		return script(t, filepath.Join(home, name), content, 0o600)
	}
	most := strings.Repeat("x", maxValue)
	for _, c := range []struct{ name, content, want string }{
		{"as it is", "secret", "secret"},
		{"one line end is cut", "secret\n", "secret"},
		{"one line end of DOS is cut", "secret\r\n", "secret"},
		{"only one", "secret\n\n", "secret\n"},
		{"carriage return alone stays", "secret\r", "secret\r"},
		{"empty", "", ""},
		{"line end only", "\n", ""},
		{"bytes", "\xff\xfe=\x01", "\xff\xfe=\x01"},
		{"the most", most + "\r\n", most},
	} {
		t.Run(c.name, func(t *testing.T) {
			put("token", c.content)
			got, err := Resolve([]v1alpha1.EnvVar{{Name: "T", ValueFrom: &v1alpha1.EnvVarSource{File: "~/token"}}}, home)
			if err != nil || len(got) != 1 || got[0] != "T="+c.want {
				t.Errorf("got %.100q, %v; want %.100q", got, err, c.want)
			}
		})
	}
	value, empty := "v =\n", ""
	got, err := Resolve([]v1alpha1.EnvVar{{Name: "A", Value: &value}, {Name: "B", Value: &empty}}, home)
	if want := []string{"A=v =\n", "B="}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}

	const secret = "s3cr3t"
	fifo := filepath.Join(home, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		match      error
	}{
		{"missing", filepath.Join(home, "missing"), os.ErrNotExist},
		{"folder", home, files.ErrNotRegular},
		{"pipe", fifo, files.ErrNotRegular},
		{"too large", put("large", secret+most), files.ErrTooLarge},
		{"NUL", put("nul", secret+"\x00"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Resolve([]v1alpha1.EnvVar{{Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{File: v1alpha1.Path(c.file)}}}, home)
			e, ok := errors.AsType[*EnvironmentError](err)
			if !ok || e.Name != "TOKEN" || e.File != c.file || !errors.Is(err, ErrEnvironment) || c.match != nil && !errors.Is(err, c.match) {
				t.Fatalf("got %v; want an EnvironmentError of TOKEN and %s that matches %v", err, c.file, c.match)
			}
			if strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "TOKEN") {
				t.Errorf("the error says %q", err)
			}
		})
	}
}

func TestPasswd(t *testing.T) {
	const text = "# comment\nroot:x:0:0:root:/root:/bin/bash\nbad:x:7\n+::7:::::\nann:x:1000:1000:Ann, A:/home/ann:/bin/zsh\nbob:x:1001:1001:::\n"
	for uid, want := range map[int]User{
		0:    {"root", "/root", "/bin/bash"},
		1000: {"ann", "/home/ann", "/bin/zsh"},
		1001: {"bob", "/", "/bin/sh"},
		7:    {},
		42:   {},
	} {
		got, ok := parsePasswd(text, uid)
		if got != want || ok != (want != User{}) {
			t.Errorf("user %d = %+v, %v; want %+v", uid, got, ok, want)
		}
	}
	u, err := CurrentUser(t.Context())
	if err != nil || u.Name == "" || !filepath.IsAbs(u.Home) || !filepath.IsAbs(u.Shell) {
		t.Errorf("CurrentUser = %+v, %v", u, err)
	}
}
