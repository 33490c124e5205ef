package git

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skc.dev/skc/effects"
)

const oid = "0123456789abcdef0123456789abcdef01234567"

func TestParseList(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []effects.ListedWorktree
		bad      bool
	}{
		{name: "nothing", bad: true},
		{name: "one", in: "worktree /a\x00HEAD " + oid + "\x00branch refs/heads/main\x00\x00",
			want: []effects.ListedWorktree{{Path: "/a", Head: oid, Branch: "refs/heads/main"}}},
		{name: "all that there is", in: "worktree /a b\n\xff\x00bare\x00\x00worktree /c\x00HEAD " + oid + "\x00detached\x00locked\x00prunable why not\x00\x00" +
			"worktree /d\x00HEAD " + oid + "\x00branch refs/heads/x\x00locked two\nlines\x00new thing\x00\x00",
			want: []effects.ListedWorktree{{Path: "/a b\n\xff", Bare: true}, {Path: "/c", Head: oid, Detached: true, Locked: true, Prunable: true, PrunableReason: "why not"},
				{Path: "/d", Head: oid, Branch: "refs/heads/x", Locked: true, LockReason: "two\nlines"}}},
		{name: "broke off", in: "worktree /a\x00HEAD " + oid + "\x00", bad: true},
		{name: "broke off in the second", in: "worktree /a\x00bare\x00\x00worktree /b", bad: true},
		{name: "no path", in: "HEAD " + oid + "\x00\x00", bad: true},
		{name: "an empty path", in: "worktree \x00\x00", bad: true},
		{name: "two paths", in: "worktree /a\x00worktree /b\x00\x00", bad: true},
		{name: "two branches", in: "worktree /a\x00branch refs/heads/a\x00branch refs/heads/b\x00\x00", bad: true},
		{name: "half a commit", in: "worktree /a\x00HEAD 0123\x00\x00", bad: true},
		{name: "no ref", in: "worktree /a\x00branch main\x00\x00", bad: true},
		{name: "lines", in: "worktree /a\nHEAD " + oid + "\n\n", bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseList(tc.in)
			if (err != nil) != tc.bad {
				t.Fatalf("error %v, want one: %v", err, tc.bad)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzParseList: what is read is what was written, and anything else is refused
// or holds no less.
func FuzzParseList(f *testing.F) {
	f.Add("worktree /a\x00HEAD "+oid+"\x00branch refs/heads/main\x00\x00", "/p\n\xff", "why")
	f.Fuzz(func(t *testing.T, in, path, reason string) {
		if list, err := parseList(in); err == nil {
			if n := strings.Count(in, "\x00\x00"); len(list) == 0 || len(list) > n {
				t.Errorf("%d records of %d in %q", len(list), n, in)
			}
		}
		if path == "" || strings.ContainsRune(path+reason, 0) {
			return
		}
		want := []effects.ListedWorktree{{Path: path, Head: oid, Detached: true, Locked: true, LockReason: reason}}
		got, err := parseList("worktree " + path + "\x00HEAD " + oid + "\x00detached\x00locked " + reason + "\x00\x00")
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func FuzzMark(f *testing.F) {
	f.Add("/p\n\xff", "feat/\xff", "skc worktree 1\n")
	f.Fuzz(func(t *testing.T, path, branch, in string) {
		m := mark{UID: "u-1", Identity: "1:2", Path: path, Branch: branch, OtherDisk: true}
		if got, ok := decodeMark(m.encode()); !ok || got != m {
			t.Errorf("got %+v, %v; want %+v", got, ok, m)
		}
		if got, ok := decodeMark([]byte(in)); ok {
			if again, ok := decodeMark(got.encode()); !ok || again != got {
				t.Errorf("%q is read as %+v and then as %+v", in, got, again)
			}
		}
	})
}

// ours are the names that git takes and we do not.
func ours(name string) bool {
	if name == "@" || len(name) > 1000 {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 240 {
			return true
		}
	}
	return false
}

// FuzzCheckBranch compares the rule with git's own.
func FuzzCheckBranch(f *testing.F) {
	for _, s := range []string{"main", "feat/x", "-x", "a..b", "a.lock/b", "a/.b", "@", "a@{b", "HEAD", "a\\b", "ä", "a\xff", "x.", "/", "a//b", "refs/heads/x", "@/x", "x.lock"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.ContainsRune(name, 0) || len(name) > 4000 {
			return
		}
		err := exec.Command("git", "check-ref-format", heads+name).Run()
		git := err == nil && name[0] != '-' && name != "HEAD" // what git branch adds to it
		if got := CheckBranch(name) == nil; got != git && !(git && ours(name)) {
			t.Errorf("CheckBranch(%q): %v, and git takes it: %v", name, CheckBranch(name), git)
		}
	})
}

func TestPrefixOfContent(t *testing.T) {
	for _, tc := range []struct {
		file, want string
		same       bool
	}{{"", "abc", true}, {"ab", "abc", true}, {"abc", "abc", true}, {"x", "abc", false}, {"abx", "abc", false}} {
		c := &comparer{r: strings.NewReader(tc.file)}
		for _, b := range []byte(tc.want) {
			_, _ = c.Write([]byte{b})
		}
		if c.differs == tc.same {
			t.Errorf("%q of %q: differs %v", tc.file, tc.want, c.differs)
		}
	}
}

func TestWithoutPasswords(t *testing.T) {
	got := withoutPasswords("fatal: could not read from 'https://me:secret@host/x' as a@b")
	if strings.Contains(got, "secret") || !strings.Contains(got, "@host/x") {
		t.Error(got)
	}
}
