package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/home"
	"skc.dev/skc/controller/spool"
	"skc.dev/skc/effects/files"
)

// maxDepth is how many folders deep a folder is read, as the spool does it.
const maxDepth = 32

// sourceFiles lists the files of a folder, and of the folders in it when
// recursive is set, that the spool would read: by name, links followed, in
// order.
func sourceFiles(dir string, recursive bool) ([]string, error) {
	var paths []string
	above := map[string]bool{} // folders on the way down: a link to one of them is a circle
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		id, err := files.Identity(dir, true)
		if err != nil {
			return err
		}
		if above[id] || depth > maxDepth {
			return nil
		}
		above[id] = true
		defer delete(above, id)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if spool.Hidden(e.Name()) {
				continue
			}
			mode := e.Type()
			if mode&fs.ModeSymlink != 0 {
				fi, err := os.Stat(path)
				if err != nil {
					continue // points nowhere: the spool reports it
				}
				mode = fi.Mode().Type()
			}
			switch {
			case mode.IsDir() && recursive:
				if err := walk(path, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			case mode.IsRegular() && spool.ResourceName(e.Name()):
				paths = append(paths, path)
			}
		}
		return nil
	}
	err := walk(dir, 1)
	return paths, err
}

// roots are the source roots that are read: the home's, those that the
// controller says it reads, and the one of what it asks for itself. When it was
// told to read others only, the home's is not among them. New files go to the
// first.
func roots(h home.Home) []string {
	reports, err := spool.ReadReports(h.Sources())
	if err != nil {
		return []string{h.Spool, h.Managed()}
	}
	var all []string
	for _, r := range reports.Roots {
		if r.State != spool.RootNotConfigured && r.Path != h.Spool && r.Path != h.Managed() {
			all = append(all, r.Path)
		}
	}
	own := slices.ContainsFunc(reports.Roots, func(r spool.RootReport) bool {
		return r.Path == h.Spool && r.State != spool.RootNotConfigured
	})
	if own || len(all) == 0 {
		all = append([]string{h.Spool}, all...)
	}
	return append(all, h.Managed())
}

// The types of a source.
const (
	sourceRoot = "Root"
	sourceFile = "File"
)

// States of a good file. What is wrong with a bad one the spool words.
const (
	fileAccepted = "Accepted" // its objects are known
	filePending  = "Pending"  // no controller has read it yet
)

// source is one line of get sources: a root or a file.
type source struct {
	Path    string   `json:"path"`
	Type    string   `json:"type"`
	State   string   `json:"state"`
	Objects []string `json:"objects,omitempty"`
	Message string   `json:"message,omitempty"`
}

func (s source) bad() bool {
	return s.State != fileAccepted && s.State != filePending && s.State != string(spool.RootReady)
}

// readSources is all roots and files. What the controller reported counts while
// it runs; what it has not reported on, and all when it is down, is judged here,
// by the same decoder.
func (c *cli) readSources(h home.Home) ([]source, error) {
	up, _ := c.running(h)
	reports, err := spool.ReadReports(h.Sources())
	if err != nil {
		c.note("%v", err)
	}
	d := newDesired(h)
	all := map[string]source{}
	for _, kind := range v1alpha1.Kinds() {
		objects, err := d.state.List(kind, "")
		if err != nil {
			c.note("%v", err)
		}
		for _, o := range objects {
			if path := o.GetAnnotations()[v1alpha1.SourceFileAnnotation]; path != "" && o.GetDeletionTimestamp() == nil {
				s := all[path]
				all[path] = source{Path: path, Type: sourceFile, State: fileAccepted, Objects: append(s.Objects, objectName(api.KeyOf(o)))}
				if up {
					d.skip[path] = true
				}
			}
		}
	}
	if err := d.scan(); err != nil {
		c.note("%v", err)
	}
	for path, f := range d.known {
		s, seen := all[path]
		if !seen {
			s = source{Path: path, Type: sourceFile, State: filePending}
		}
		s.Objects = nil
		for _, doc := range f.Docs {
			key := api.KeyOf(doc.Object)
			s.Objects = append(s.Objects, objectName(key))
			if w := d.where[key]; len(w) > 1 && (!seen || d.sourceOf(key) != path) {
				s.State, s.Message = string(spool.FileDuplicate), short(key)+" is defined in "+strings.Join(w, ", ")
			} else if seen && d.sourceOf(key) != path {
				s.State = filePending
			}
		}
		all[path] = s
	}
	for path, err := range d.broken {
		s := source{Path: path, Type: sourceFile, State: string(spool.FileInvalid), Objects: all[path].Objects, Message: err.Error()}
		if _, refused := api.AsInvalidSpec(err); !refused {
			s.State = string(spool.FileUnreadable)
		}
		all[path] = s
	}
	if up {
		for _, r := range reports.Files {
			all[r.Path] = source{Path: r.Path, Type: sourceFile, State: string(r.State), Objects: all[r.Path].Objects, Message: r.Message}
		}
	}
	list := slices.SortedFunc(maps.Values(all), func(a, b source) int { return cmp.Compare(a.Path, b.Path) })
	var top []source
	for _, r := range reports.Roots {
		s := source{Path: r.Path, Type: sourceRoot, State: string(r.State), Message: r.Message}
		if s.Message == "" && r.Mode == spool.ModePolling {
			s.Message = "looked at again and again: it cannot be watched"
		}
		top = append(top, s)
	}
	if len(top) == 0 {
		s := source{Path: h.Spool, Type: sourceRoot, State: filePending}
		if _, err := os.Stat(h.Spool); errors.Is(err, fs.ErrNotExist) {
			s.State, s.Message = string(spool.RootMissing), "there is no such folder; skcctl apply makes it"
		}
		top = append(top, s)
	}
	return append(top, list...), nil
}

// objectName is session/web, or session/web in namespace.
func objectName(key api.Key) string {
	if key.Namespace == v1alpha1.DefaultNamespace {
		return short(key)
	}
	return key.String()
}

// getSources shows the roots and files that objects come from. What the
// controller reported is what counts; files that it has not reported on are
// judged here, by the same decoder.
func getSources(o *getOptions, h home.Home) error {
	if o.selector != "" || o.sortBy != "" || o.watch {
		return usagef("get sources does not take -l, --sort-by or -w")
	}
	o.noteDown(h, "files are judged here, and roots are as it saw them last")
	list, err := o.readSources(h)
	if err != nil {
		return err
	}
	switch o.output {
	case "json":
		return writeJSON(o.out, list)
	case "", "table", "wide":
	default:
		return usagef("get sources has the outputs table, wide, json")
	}
	return o.write(func(w io.Writer) error {
		tabs := printers.GetNewTabWriter(w)
		if !o.noHeaders {
			fmt.Fprintln(tabs, "SOURCE\tTYPE\tSTATE\tOBJECTS\tMESSAGE") //nolint:errcheck // Flush tells
		}
		for _, s := range list {
			message, _, more := strings.Cut(s.Message, "\n")
			if more && o.output != "wide" {
				message += " (and more: -o wide)"
			} else if more {
				message = strings.ReplaceAll(s.Message, "\n", "; ")
			}
			objects := strings.Join(s.Objects, ",")
			if len(s.Objects) > 3 && o.output != "wide" {
				objects = fmt.Sprintf("%s and %d more", strings.Join(s.Objects[:3], ","), len(s.Objects)-3)
			}
			fmt.Fprintf(tabs, "%s\t%s\t%s\t%s\t%s\n", inertLine(s.Path), s.Type, s.State, inertLine(objects), inertLine(message)) //nolint:errcheck // Flush tells
		}
		return tabs.Flush()
	})
}
