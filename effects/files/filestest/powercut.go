// Package filestest builds what a power cut may leave on the disk, from the
// operations that a files.Layer did.
//
// The model is a journaling file system at its worst: a file's bytes are on the
// disk when the file was synced, and else all, some or none of them; its names
// when the folder was synced, and else those of any first part of the
// operations on names, of which one rename may be missing as well.
package filestest

import (
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"skc.dev/skc/effects/files"
)

// Recorder keeps the operations on the files below one folder.
type Recorder struct {
	dir string

	mu     sync.Mutex
	before map[string][]byte // files at the start, by path below dir
	steps  []step
	marks  int
}

// step is one operation, or a mark.
type step struct {
	op   files.Op
	mark bool
}

// Record begins with what is below dir, which counts as synced. Give its Trace
// to the layer.
func Record(t testing.TB, dir string) *Recorder {
	t.Helper()
	r := &Recorder{dir: dir, before: map[string][]byte{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			r.before[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Trace is for files.Layer.
func (r *Recorder) Trace(op files.Op) {
	op.Data = slices.Clone(op.Data)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step{op: op})
}

// Mark says that all that was done so far was acknowledged.
func (r *Recorder) Mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step{mark: true})
	r.marks++
}

// Without is the recording less the operations of one kind, as if the code did
// not do them: a check of the check.
func (r *Recorder) Without(kind files.OpKind) *Recorder {
	out := &Recorder{dir: r.dir, before: r.before, marks: r.marks}
	for _, s := range r.steps {
		if s.mark || s.op.Kind != kind {
			out.steps = append(out.steps, s)
		}
	}
	return out
}

// Cut is what one power cut may leave.
type Cut struct {
	Marks int    // how many marks came before it
	What  string // for messages
	files map[string][]byte
	dir   string
}

// Write puts the files below dir, which stands for the recorded folder.
func (c Cut) Write(t testing.TB, dir string) {
	t.Helper()
	for path, data := range c.files {
		rel, err := filepath.Rel(c.dir, path)
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// inode is one file, whatever its names.
type inode struct {
	synced  []byte
	pending []byte // appended since
}

// cuts are the lengths to which bytes that were not synced may be cut: the
// ends, and the sides of a sector and a page.
var cuts = []int{0, 1, 511, 512, 4095, 4096}

// exhaustive is how many operations on names may wait for every combination to
// be built; of more, samples are.
const (
	exhaustive = 12
	samples    = 40
)

// Cuts builds every state, or, where too much is open, a random part of them
// that seed chooses. States that are equal come once for each mark.
func (r *Recorder) Cuts(seed uint64) iter.Seq[Cut] {
	return func(yield func(Cut) bool) {
		random := rand.New(rand.NewPCG(seed, seed))
		seen := map[string]bool{}
		d := newDisk(r.before)
		for at, marks := 0, 0; ; at++ {
			for state := range d.states(random) {
				c := Cut{Marks: marks, What: fmt.Sprintf("cut after operation %d of %d (%s), %d acknowledged", at, len(r.steps), state.what, marks), files: state.files, dir: r.dir}
				if id := c.id(); seen[id] {
					continue
				} else {
					seen[id] = true
				}
				if !yield(c) {
					return
				}
			}
			if at == len(r.steps) {
				return
			}
			if r.steps[at].mark {
				marks++
			} else {
				d.do(r.steps[at].op)
			}
		}
	}
}

func (c Cut) id() string {
	id := fmt.Sprint(c.Marks)
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		id += fmt.Sprintf("\x00%s\x00%s", path, c.files[path])
	}
	return id
}

// disk is the state while operations go on.
type disk struct {
	names   map[string]*inode // on the disk
	live    map[string]*inode // as a process sees them
	pending []change
}

// change is one operation on names that is not on the disk yet.
type change struct {
	kind     files.OpKind
	from, to string
	file     *inode
}

func newDisk(before map[string][]byte) *disk {
	d := &disk{names: map[string]*inode{}, live: map[string]*inode{}}
	for path, data := range before {
		f := &inode{synced: data}
		d.names[path], d.live[path] = f, f
	}
	return d
}

func (d *disk) do(op files.Op) {
	switch op.Kind {
	case files.OpWrite:
		d.change(change{files.OpWrite, "", op.Path, &inode{pending: op.Data}})
	case files.OpAppend:
		f := d.live[op.Path]
		if f == nil {
			f = &inode{}
			d.change(change{files.OpWrite, "", op.Path, f})
		}
		f.pending = append(slices.Clone(f.pending), op.Data...)
	case files.OpSync:
		f := d.live[op.Path]
		f.synced, f.pending = append(slices.Clone(f.synced), f.pending...), nil
	case files.OpSyncDir:
		var left []change
		for _, c := range d.pending {
			if in(op.Path, c.from) || in(op.Path, c.to) {
				c.apply(d.names)
			} else {
				left = append(left, c)
			}
		}
		d.pending = left
	case files.OpRename, files.OpLink:
		d.change(change{op.Kind, op.Path, op.To, d.live[op.Path]})
	case files.OpRemove:
		d.change(change{files.OpRemove, op.Path, "", nil})
	}
}

func in(dir, path string) bool { return path != "" && filepath.Dir(path) == filepath.Clean(dir) }

func (d *disk) change(c change) {
	c.apply(d.live)
	d.pending = append(d.pending, c)
}

func (c change) apply(names map[string]*inode) {
	if c.kind == files.OpRename || c.kind == files.OpRemove {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.file
	}
}

type state struct {
	what  string
	files map[string][]byte
}

// states are what the disk may hold if the power goes now.
func (d *disk) states(random *rand.Rand) iter.Seq[state] {
	return func(yield func(state) bool) {
		n := len(d.pending)
		try := func(prefix, dropped, length int) bool {
			names := maps.Clone(d.names)
			for i, c := range d.pending[:prefix] {
				if i != dropped {
					c.apply(names)
				}
			}
			s := state{what: fmt.Sprintf("%d of %d changes of names, without %d, new bytes cut at %d", prefix, n, dropped, length), files: map[string][]byte{}}
			for path, f := range names {
				rest := f.pending
				if length >= 0 {
					rest = rest[:min(length, len(rest))]
				}
				s.files[path] = append(slices.Clone(f.synced), rest...)
			}
			return yield(s)
		}
		lengths := append([]int{-1}, cuts...) // -1: all bytes are there
		if n > exhaustive {
			for range samples {
				dropped := -1
				if i := random.IntN(n); random.IntN(2) == 0 && d.pending[i].kind == files.OpRename {
					dropped = i
				}
				if !try(random.IntN(n+1), dropped, lengths[random.IntN(len(lengths))]) {
					return
				}
			}
			return
		}
		for prefix := 0; prefix <= n; prefix++ {
			for dropped := -1; dropped < prefix; dropped++ {
				if dropped >= 0 && d.pending[dropped].kind != files.OpRename {
					continue
				}
				for _, length := range lengths {
					if !try(prefix, dropped, length) {
						return
					}
				}
			}
		}
	}
}
