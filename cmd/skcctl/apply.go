package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/cmd/skcctl/manifest"
	"skc.dev/skc/effects"
)

type applyOptions struct {
	*cli
	inputs
	dryRun  bool
	wait    bool
	timeout time.Duration
}

func newApply(c *cli) *cobra.Command {
	o := &applyOptions{cli: c}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Make the spool say what files say",
		Example: `  skcctl apply -f web.yaml
  skcctl apply -f sessions/ -R --wait
  generate-sessions | skcctl apply -f - --dry-run`,
		Long: `All files are read first; if one of them is refused, nothing is changed. An
object that a file of the spool defines already is replaced there, and all else
in that file stays as it is. A new one gets a file of its own,
SPOOL/NAMESPACE/KIND-NAME.yaml.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runApply(cmd.Context(), o) },
	}
	o.inputs.bind(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until all that was applied is Ready")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long --wait waits")
	return cmd
}

func runApply(ctx context.Context, o *applyOptions) error {
	h, err := o.home()
	if err != nil {
		return err
	}
	given, err := o.inputs.read(o.cli)
	if err != nil {
		return err
	}
	d := newDesired(h)
	if !o.dryRun {
		unlock, err := d.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	var keys []api.Key
	for _, in := range given {
		for i := range in.Docs {
			key := api.KeyOf(in.Docs[i].Object)
			did, err := d.apply(in, i, o.dryRun)
			if err != nil {
				return err
			}
			if o.dryRun {
				did += " (dry run)"
			}
			if err := o.printf("%s %s\n", short(key), did); err != nil {
				return err
			}
			keys = append(keys, key)
		}
	}
	for path, err := range d.broken {
		o.note("the spool has a file that is refused: %s", strings.TrimPrefix(err.Error(), path+":"))
	}
	if o.dryRun {
		return nil
	}
	if !o.wait {
		o.noteDown(h, "this takes effect when it is started")
		return nil
	}
	return waitFor(ctx, o.cli, h, keys, conditionMet{v1alpha1.Ready, "True"}, o.timeout)
}

// apply makes the spool define the object as document i of in does, and says
// what that took.
func (d *desired) apply(in manifest.File, i int, dryRun bool) (did string, err error) {
	key := api.KeyOf(in.Docs[i].Object)
	old, at, err := d.locate(key)
	if errors.Is(err, effects.ErrNotFound) {
		path := filepath.Join(d.roots[0], key.Namespace, strings.ToLower(key.Kind)+"-"+key.Name+".yaml")
		f, err := manifest.Parse(path, in.Document(i))
		if err != nil {
			return "", err
		}
		switch there, err := d.read(path); {
		case err == nil && len(there.Docs) > 0, err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", conflictf("%s: the file that %s would get holds something else; move it away", path, short(key))
		}
		if !dryRun {
			err = d.create(f)
		} else {
			err = nil
		}
		return "created", err
	}
	if err != nil {
		return "", err
	}
	if in, i, err = keepAnnotations(in, i, old, at); err != nil {
		return "", err
	}
	if manifest.Same(old.Docs[at], in.Docs[i]) {
		return "unchanged", nil
	}
	next, err := old.Replace(at, in, i)
	if err == nil && !dryRun {
		err = d.save(old, next)
	}
	return "configured", err
}

// keptAnnotations are those that skc made, and that a document which lacks them
// would drop: one more restart, or a worktree that came back from quarantine and
// is not known as the Session's any more.
var keptAnnotations = []string{v1alpha1.RestartedAtAnnotation, v1alpha1.RestoredFromAnnotation}

// keepAnnotations carries those over to a document that does not have them.
func keepAnnotations(in manifest.File, i int, old manifest.File, at int) (manifest.File, int, error) {
	for _, name := range keptAnnotations {
		value, was := old.Docs[at].Object.GetAnnotations()[name]
		if _, is := in.Docs[i].Object.GetAnnotations()[name]; is || !was {
			continue
		}
		var err error
		if in, err = in.Set(i, value, "metadata", "annotations", name); err != nil {
			return in, i, err
		}
	}
	return in, i, nil
}

// inputs are the files that -f names.
type inputs struct {
	paths     []string
	recursive bool
}

func (in *inputs) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.paths, "filename", "f", nil, "`FILE`, folder, or - for standard input; may be given again")
	cmd.Flags().BoolVarP(&in.recursive, "recursive", "R", false, "also read what is in the folders of a folder")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// read decodes everything, or returns all that is wrong with any of it.
func (in *inputs) read(c *cli) ([]manifest.File, error) {
	if len(in.paths) == 0 {
		return nil, usagef("name a file with -f")
	}
	var given []manifest.File
	var wrong []error
	add := func(name string, data []byte, err error) {
		var f manifest.File
		if err == nil {
			f, err = manifest.Parse(name, data)
		}
		if err == nil {
			f, err = c.inNamespace(f)
		}
		if err != nil {
			wrong = append(wrong, err)
			return
		}
		given = append(given, f)
	}
	for _, path := range in.paths {
		if path == "-" {
			data, err := readLimited(c.in)
			add("stdin", data, err)
			continue
		}
		names := []string{path}
		if fi, err := os.Stat(c.abs(path)); err == nil && fi.IsDir() {
			if names, err = sourceFiles(c.abs(path), in.recursive); err != nil {
				wrong = append(wrong, err)
				continue
			}
			if len(names) == 0 {
				wrong = append(wrong, fmt.Errorf("%s holds no file that ends in .yaml, .yml or .json", path))
			}
			for i, name := range names {
				if rel, err := filepath.Rel(c.abs(path), name); err == nil {
					names[i] = filepath.Join(path, rel)
				}
			}
		}
		for _, name := range names {
			data, err := c.readInput(name)
			add(name, data, err)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return given, onceEach(given)
}

// onceEach refuses two documents for one object.
func onceEach(given []manifest.File) error {
	seen := map[api.Key]string{}
	total := 0
	for _, f := range given {
		for _, doc := range f.Docs {
			key, here := api.KeyOf(doc.Object), fmt.Sprintf("%s:%d", f.Path, doc.Line)
			if there, ok := seen[key]; ok {
				return &api.InvalidSpecError{File: f.Path, Problems: []api.Problem{{
					Line: doc.Line, Message: fmt.Sprintf("%s is defined at %s too", short(key), there),
				}}}
			}
			seen[key] = here
			total++
		}
	}
	if total == 0 {
		return &api.InvalidSpecError{Problems: []api.Problem{{Message: "there is no object in what was given"}}}
	}
	return nil
}

// inNamespace puts documents that name no namespace into the one of -n, and
// refuses those that name another.
func (c *cli) inNamespace(f manifest.File) (manifest.File, error) {
	if c.namespace == "" {
		return f, nil
	}
	ns, err := c.ns()
	if err != nil {
		return f, err
	}
	for i := range f.Docs {
		o := f.Docs[i].Object
		if o.GetNamespace() == ns || v1alpha1.ClusterScoped(api.KeyOf(o).Kind) {
			continue
		}
		if f.Says(i, "metadata", "namespace") {
			return f, usagef("%s:%d: %s is in namespace %s, not in %s as --namespace says", f.Path, f.Docs[i].Line, short(api.KeyOf(o)), o.GetNamespace(), ns)
		}
		if f, err = f.Set(i, ns, "metadata", "namespace"); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (c *cli) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.cwd, path)
}

// readInput reads a file that the user names, which may be a pipe.
func (c *cli) readInput(name string) (data []byte, err error) {
	f, err := os.Open(c.abs(name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readLimited(f)
}

// readLimited reads one byte more than a file may have, for the decoder to say so.
func readLimited(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, v1alpha1.MaxFileBytes+1))
}
