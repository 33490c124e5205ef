package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// inGroup has the program born in the group, which is "" without cgroups.
func inGroup(t *testing.T, cmd *exec.Cmd, dir string) {
	if dir == "" {
		return
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(d.Fd())
}

func TestFindMount(t *testing.T) {
	for _, c := range []struct {
		name, in, mounted, root string
		ok                      bool
	}{
		{
			name:    "pure v2",
			in:      "24 1 0:5 / /proc rw shared:1 - proc proc rw\n35 24 0:29 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
			mounted: "/sys/fs/cgroup", root: "/", ok: true,
		},
		{
			name:    "hybrid, no optional fields",
			in:      "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
			mounted: "/sys/fs/cgroup/unified", root: "/", ok: true,
		},
		{
			name:    "part of the tree under an odd name",
			in:      "41 31 0:38 /a\\040b /mnt/c\\134d rw - cgroup2 none rw\n",
			mounted: `/mnt/c\d`, root: "/a b", ok: true,
		},
		{name: "v1 only", in: "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"},
		{name: "empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mounted, root, ok := findMount(c.in)
			if mounted != c.mounted || root != c.root || ok != c.ok {
				t.Errorf("got %q, %q, %v; want %q, %q, %v", mounted, root, ok, c.mounted, c.root, c.ok)
			}
		})
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name, root, cgroup string
		want               []string
	}{
		{name: "root", root: "/", cgroup: "0::/\n", want: []string{"/m"}},
		{name: "unit", root: "/", cgroup: "1:cpu:/x\n0::/a/b.service\n", want: []string{"/m", "/m/a", "/m/a/b.service"}},
		{name: "part of the tree", root: "/a", cgroup: "0::/a/b\n", want: []string{"/m", "/m/b"}},
		{name: "outside of what is mounted", root: "/a", cgroup: "0::/c\n"},
		{name: "outside of the namespace", root: "/", cgroup: "0::/../c\n", want: []string{"/m", "/m/c"}},
		{name: "v1 only", root: "/", cgroup: "1:cpu:/x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := candidates("/m", c.root, ownPath(c.cgroup)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Groups come and go at the same time; the base with the last of them.
func TestPrepareAndReleaseTogether(t *testing.T) {
	s := NewSessions(true)
	base, why := s.Base()
	if why != nil {
		t.Skipf("no cgroups: %v", why)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			uid := newUID()
			for range 50 {
				if dir, err := s.Prepare(uid); err != nil || filepath.Dir(dir) != base {
					t.Errorf("Prepare = %q, %v", dir, err)
				}
				if err := s.Release(uid); err != nil {
					t.Errorf("Release = %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// The counter of the memory controller, as the kernel writes it.
func TestOOMKilled(t *testing.T) {
	s := &Sessions{groups: groups{base: t.TempDir()}}
	const uid = "0b1f"
	if oom, err := s.OOMKilled(uid); oom || err != nil {
		t.Errorf("without a group: %v, %v", oom, err)
	}
	dir := filepath.Join(s.groups.base, uid)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"low 0\nhigh 0\nmax 9\noom 2\noom_kill 0\noom_group_kill 0\n": false,
		"low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n": true,
		"": false,
	} {
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if oom, err := s.OOMKilled(uid); oom != want || err != nil {
			t.Errorf("OOMKilled of %q = %v, %v; want %v", text, oom, err, want)
		}
	}
}
