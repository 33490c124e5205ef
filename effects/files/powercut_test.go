package files_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/files/filestest"
)

// history does durable operations and records them. After the n-th mark the
// file a holds versions[n], and log the first n lines.
func history(t *testing.T) (r *filestest.Recorder, versions []string) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a"), "0")
	r = filestest.Record(t, dir)
	l := files.Layer{Trace: r.Trace}
	versions = []string{"0"}
	for _, size := range []int{1, 600, 5000, 0, 40} {
		v := strings.Repeat("x", size)
		must(t, l.Write(point, filepath.Join(dir, "a"), []byte(v), files.Durable))
		must(t, l.Append(point, filepath.Join(dir, "log"), []byte("line\n"), files.Durable))
		r.Mark()
		versions = append(versions, v)
	}
	return r, versions
}

// violations counts the states in which an acknowledged write is lost or a
// reader sees no whole version.
func violations(t *testing.T, r *filestest.Recorder, versions []string) (bad, all int) {
	for cut := range r.Cuts(1) {
		all++
		dir := t.TempDir()
		cut.Write(t, dir)
		a, err := os.ReadFile(filepath.Join(dir, "a"))
		good := err == nil && string(a) == versions[cut.Marks]
		if next := cut.Marks + 1; next < len(versions) {
			good = good || err == nil && string(a) == versions[next]
		}
		log, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		good = good && bytes.Count(log, []byte("line\n")) >= cut.Marks
		if !good {
			bad++
		}
	}
	return bad, all
}

func TestPowerCut(t *testing.T) {
	r, versions := history(t)
	bad, all := violations(t, r, versions)
	if bad != 0 || all < 30 {
		t.Errorf("%d of %d states lost something; want none of at least 30", bad, all)
	}
	// The check sees what it should: without either sync something is lost.
	for _, kind := range []files.OpKind{files.OpSync, files.OpSyncDir} {
		if bad, _ := violations(t, r.Without(kind), versions); bad == 0 {
			t.Errorf("without %s nothing is lost: the check is blind", kind)
		}
	}
}
